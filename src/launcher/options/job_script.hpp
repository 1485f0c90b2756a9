#pragma once
// --jobscript: passes what the flags say to jobscripts/.
#include <optional>
#include <string>

#include "base/result.hpp"
#include "launcher/options/flags.hpp"

namespace hvd::launcher {

// Returns the script. `site_file` is the text of the file that --site names, if --site names a file.
Result<std::string> job_script(const Flags& flags, const std::optional<std::string>& site_file);

}  // namespace hvd::launcher
