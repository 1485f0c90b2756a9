#pragma once
// The kinds of device memory, as the library knows them (hvd_get_device_facts).
#include <optional>

#include "api/horovod.h"

namespace hvd::python {

// Nothing if there is no such kind.
std::optional<hvd_device_facts> facts_of(hvd_device device);
// "cuda": HVD_CUDA. Nothing if there is no kind of that name.
std::optional<hvd_device> device_named(const char* name);

}  // namespace hvd::python
