#pragma once
// Makes the text that `horovodrun --check-build` prints.
#include <string>

#include "base/settings/environment.hpp"

namespace hvd::launcher {

// Looks for frameworks in the Python that PATH leads to. It does not import them.
std::string check_build_text(const Environment& environment, bool verbose);

}  // namespace hvd::launcher
