#pragma once
// Finds and reads the files of settings: the site's, by the place of the library or program that contains this code,
// and the user's.
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "base/result.hpp"
#include "base/settings_file.hpp"

namespace hvd::posix {

// The site's file: what HOROVOD_SITE_CONFIG names ("none": none), else etc/horovod/site.yaml in the nearest folder
// above `own_folder` that has it. The user's: horovod/config.yaml in XDG_CONFIG_HOME, or in ~/.config. A file that is
// not there adds nothing; one that cannot be read or understood is an error. A site's file that somebody else could
// have put there is passed over with a notice.
Result<SettingsFiles> read_settings_files(const Environment& environment, const std::string& own_folder,
                                          std::vector<std::string>& notices);

// The folder of the executable or shared object that contains this code.
std::string own_folder();

// The files for this process, read by the first call. `notices` are about what they say.
Result<const SettingsFiles*> settings_files(std::vector<std::string>& notices);

// The environment and what the files for this process add to it. Fails also if what the site has locked was set
// otherwise.
Result<Environment> with_settings_files(const Environment& environment, std::vector<std::string>& notices);

}  // namespace hvd::posix
