#pragma once
// Ends the process when an invariant is broken. That is a defect of this program, never a mistake of the user.
#include <source_location>
#include <string_view>

namespace hvd {

[[noreturn]] void panic(std::string_view what, std::source_location where = std::source_location::current()) noexcept;

}  // namespace hvd
