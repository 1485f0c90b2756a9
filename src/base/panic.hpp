#pragma once
// Ends the process on a broken invariant: a defect of ours, never a user's mistake.
#include <source_location>
#include <string_view>

namespace hvd {

[[noreturn]] void panic(std::string_view what, std::source_location where = std::source_location::current()) noexcept;

}  // namespace hvd
