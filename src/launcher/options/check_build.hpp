#pragma once
// What `horovodrun --check-build` says.
#include <string>

#include "base/environment.hpp"

namespace hvd::launcher {

// Looks for frameworks in the Python that PATH leads to, without importing them.
std::string check_build_text(const Environment& environment, bool verbose);

}  // namespace hvd::launcher
