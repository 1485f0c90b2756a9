#pragma once
// Makes the manual page and the completion of flags for shells, from the table of flags.
#include <string>

#include "base/result.hpp"

namespace hvd::launcher {

std::string manual_page();

// Returns the completion for "bash" or "zsh". Fails for another name.
Result<std::string> completion_for(const std::string& shell);

}  // namespace hvd::launcher
