#pragma once
// Combines all sources of settings. In descending order of precedence they are: flags, --config-file, the environment,
// the user's file, the site's file. --show-config prints each value with its source.
#include <string>

#include "base/result.hpp"
#include "base/settings/environment.hpp"
#include "base/settings/settings_file.hpp"
#include "launcher/options/flags.hpp"

namespace hvd::launcher {

struct Layers {
  Environment given;  // the environment before values from files were added
  SettingsFiles files;
};

// Adds the values from the files of the user and the site to the flags and the environment. Fails if a file has a
// mistake, or if a value differs from one that the site has locked.
Result<Layers> lay_files_under(Flags& flags, Environment& environment);

// Returns the text of --show-config: every setting of the ranks and every flag, with its value and origin.
std::string show_config(const Flags& flags, const Layers& layers, bool as_json);

}  // namespace hvd::launcher
