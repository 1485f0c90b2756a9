#pragma once
// horovodrun --explain: tells what would be used here, and why. It starts nothing.
#include <string>

#include "base/result.hpp"
#include "launcher/targets/target.hpp"

namespace hvd::launcher {

Result<std::string> explain(const JobRequest& request);

}  // namespace hvd::launcher
