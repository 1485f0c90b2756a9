#pragma once
// How long a test of the C interface waits for what comes at once: a hang then fails the test.
#include <cstdint>

namespace hvd::testing {

inline constexpr std::int64_t patience_ms = 100'000;

}  // namespace hvd::testing
