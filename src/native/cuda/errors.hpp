#pragma once
// What the driver's codes mean for a program, and what its user can do.
#include <string>

#include "native/cuda/driver.hpp"

namespace hvd::cuda {

// "WHAT: CUDA_ERROR_ECC_UNCORRECTABLE (214, the driver's text): what to do".
Error error_of(const Driver& driver, Code code, const std::string& what,
               std::source_location origin = std::source_location::current());

// After such an error no call on the device succeeds any more in this process.
bool is_final(Code code) noexcept;

}  // namespace hvd::cuda
