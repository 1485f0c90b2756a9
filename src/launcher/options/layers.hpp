#pragma once
// What holds for a command line when everything that has a say is laid over each other: the site's file, the user's,
// the environment, --config-file, flags. And who said it (--show-config).
#include <string>

#include "base/environment.hpp"
#include "base/result.hpp"
#include "base/settings_file.hpp"
#include "launcher/options/flags.hpp"

namespace hvd::launcher {

struct Layers {
  Environment given;  // before files were laid under it
  SettingsFiles files;
};

// Completes the flags and the environment by the files of the user and the site. Fails on faulty files, and on what
// differs from the site's locks.
Result<Layers> lay_files_under(Flags& flags, Environment& environment);

// Every setting of the ranks and every flag: value and origin.
std::string show_config(const Flags& flags, const Layers& layers, bool as_json);

}  // namespace hvd::launcher
