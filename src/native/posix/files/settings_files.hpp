#pragma once
// Finds and reads the files of settings of the site and of the user. The site's file is looked for near the library or
// program that contains this code.
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/settings/environment.hpp"
#include "base/settings/settings_file.hpp"

namespace hvd::posix {

// The site's file is the one that HOROVOD_SITE_CONFIG names ("none": there is no file). Without this variable it is
// etc/horovod/site.yaml in the nearest folder above `own_folder` that has such a file. The user's file is
// horovod/config.yaml in XDG_CONFIG_HOME, or in ~/.config. A missing file is no error. A file that cannot be read, or
// has a mistake, is an error. If somebody else could have written the site's file, it is ignored with a notice.
Result<SettingsFiles> read_settings_files(const Environment& environment, const std::string& own_folder,
                                          std::vector<std::string>& notices);

// Returns the folder of the executable or shared object that contains this code.
std::string own_folder();

// Returns the files for this process. The first call reads them. `notices` gets the notices about their content.
Result<const SettingsFiles*> settings_files(std::vector<std::string>& notices);

// Returns the environment with the values added that the files have for this process. Also fails if a setting that the
// site has locked has another value.
Result<Environment> with_settings_files(const Environment& environment, std::vector<std::string>& notices);

// Returns the environment of this process with the values from the files of the site and of the user. A faulty file
// adds nothing here; the start of a runtime reports it.
Environment environment_with_files();

}  // namespace hvd::posix
