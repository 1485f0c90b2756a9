#pragma once
// The entries that a caller of horovod.h passes, as a state of src/checkpoint.
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <variant>

#include "api/horovod.h"
#include "checkpoint/state.hpp"

namespace hvd::api {

// The types of entries have the same numbers in horovod.h.
template <hvd_entry_type number, typename T>
constexpr bool is_numbered = std::is_same_v<std::variant_alternative_t<number, checkpoint::Content>, T>;
static_assert(is_numbered<HVD_ENTRY_GROUP, checkpoint::Group> && is_numbered<HVD_ENTRY_NONE, checkpoint::None> &&
              is_numbered<HVD_ENTRY_BOOL, bool> && is_numbered<HVD_ENTRY_INTEGER, std::int64_t> &&
              is_numbered<HVD_ENTRY_NUMBER, double> && is_numbered<HVD_ENTRY_TEXT, std::string> &&
              is_numbered<HVD_ENTRY_TENSOR, checkpoint::Tensor> &&
              std::variant_size_v<checkpoint::Content> == HVD_ENTRY_TENSOR + 1);

// The size that the struct had in the first release.
constexpr size_t first_entry_size = offsetof(hvd_checkpoint_entry, unit) + sizeof(const char*);

// Returns the address of an element. The distance of two elements is the struct's size in the caller's header.
template <typename Struct>
Struct* element(Struct* array, size_t index) {
  return reinterpret_cast<Struct*>(reinterpret_cast<std::uintptr_t>(array) + index * array->struct_size);
}

hvd_status read_entries(const hvd_checkpoint_entry* entries, size_t count, checkpoint::State& state);

}  // namespace hvd::api
