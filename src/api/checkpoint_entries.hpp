#pragma once
// The entries that a caller of horovod.h passes, as a state of src/checkpoint.
#include <cstddef>
#include <cstdint>

#include "api/horovod.h"
#include "checkpoint/state.hpp"

namespace hvd::api {

// The size that the struct had in the first release.
constexpr size_t first_entry_size = offsetof(hvd_checkpoint_entry, unit) + sizeof(const char*);

// Returns the address of an element. The distance of two elements is the struct's size in the caller's header.
template <typename Struct>
Struct* element(Struct* array, size_t index) {
  return reinterpret_cast<Struct*>(reinterpret_cast<std::uintptr_t>(array) + index * array->struct_size);
}

hvd_status read_entries(const hvd_checkpoint_entry* entries, size_t count, checkpoint::State& state);

}  // namespace hvd::api
