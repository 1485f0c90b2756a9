#pragma once
// --jobscript: what the flags say, handed to jobscripts/.
#include <optional>
#include <string>

#include "base/result.hpp"
#include "launcher/options/flags.hpp"

namespace hvd::launcher {

// The script. `site_file` is the text of the file that --site names, if it names one.
Result<std::string> job_script(const Flags& flags, const std::optional<std::string>& site_file);

}  // namespace hvd::launcher
