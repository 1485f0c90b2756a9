#pragma once
// What is written from the table of flags besides the help: the manual page, and what completes flags in shells.
#include <string>

#include "base/result.hpp"

namespace hvd::launcher {

std::string manual_page();

// For bash or zsh; fails on another name.
Result<std::string> completion_for(const std::string& shell);

}  // namespace hvd::launcher
