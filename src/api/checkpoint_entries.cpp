// Reading the entries of callers with older and newer headers, and hvd_checkpoint_copy.
#include "api/checkpoint_entries.hpp"

#include <cstdint>
#include <new>
#include <string>
#include <vector>

#include "api/answer.hpp"
#include "checkpoint/snapshot.hpp"

namespace hvd::api {
namespace {

hvd_status read_entry(const hvd_checkpoint_entry& given, checkpoint::Entry& entry) {
  auto invalid = [&](const std::string& what) {
    return fail(ErrorCode::invalid_argument, "hvd_checkpoint_entry " + entry.path + ": " + what);
  };
  if (given.path == nullptr) return invalid("its path is null");
  entry.path = given.path;
  if (given.kind != nullptr) entry.kind = given.kind;
  switch (given.type) {
    case HVD_ENTRY_GROUP: entry.content = checkpoint::Group{}; return HVD_OK;
    case HVD_ENTRY_NONE: entry.content = checkpoint::None{}; return HVD_OK;
    case HVD_ENTRY_BOOL: entry.content = given.integer != 0; return HVD_OK;
    case HVD_ENTRY_INTEGER: entry.content = std::int64_t{given.integer}; return HVD_OK;
    case HVD_ENTRY_NUMBER: entry.content = given.number; return HVD_OK;
    case HVD_ENTRY_TEXT:
      if (given.text == nullptr) return invalid("its text is null");
      entry.content = std::string(given.text);
      return HVD_OK;
    case HVD_ENTRY_TENSOR: break;
  }
  if (given.type != HVD_ENTRY_TENSOR)
    return invalid("its type is " + std::to_string(given.type) + "; expected an hvd_entry_type");
  if (given.dtype == nullptr) return invalid("its dtype is null");
  if (given.dimensions < 0 || (given.dimensions > 0 && given.shape == nullptr))
    return invalid("it has " + std::to_string(given.dimensions) + " dimensions, or no shape");
  checkpoint::Tensor tensor{given.dtype, {}, given.data, given.unit == nullptr ? "" : given.unit};
  tensor.shape.assign(given.shape, given.shape + given.dimensions);
  entry.content = std::move(tensor);
  return HVD_OK;
}

}  // namespace

hvd_status read_entries(const hvd_checkpoint_entry* entries, size_t count, checkpoint::State& state) {
  if (count > 0 && entries == nullptr)
    return fail(ErrorCode::invalid_argument, "got no entries (null), but a number of entries above 0");
  state.resize(count);
  for (size_t i = 0; i < count; ++i) {
    hvd_checkpoint_entry given{};
    if (hvd_status status = copy_in("hvd_checkpoint_entry", element(entries, i), first_entry_size, given);
        status != HVD_OK)
      return status;
    if (hvd_status status = read_entry(given, state[i]); status != HVD_OK) return status;
  }
  return HVD_OK;
}

}  // namespace hvd::api

extern "C" hvd_status hvd_checkpoint_copy(hvd_checkpoint_entry* entries, size_t count, void* memory, size_t* bytes) {
  using hvd::ErrorCode;
  using hvd::api::fail;
  namespace checkpoint = hvd::checkpoint;
  if (bytes == nullptr) return fail(ErrorCode::invalid_argument, "hvd_checkpoint_copy: bytes is null");
  checkpoint::State state;
  if (hvd_status status = hvd::api::read_entries(entries, count, state); status != HVD_OK) return status;
  std::vector<checkpoint::Copy> copies(count);
  size_t needed = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto* tensor = std::get_if<checkpoint::Tensor>(&state[i].content);
    if (tensor == nullptr) continue;
    auto size = checkpoint::bytes_of(*tensor);
    if (!size)
      return fail(ErrorCode::invalid_argument, "hvd_checkpoint_copy: " + state[i].path + ": " + size.error().message);
    if (memory != nullptr) copies[i].to = static_cast<std::byte*>(memory) + needed;
    copies[i].from = tensor->data;
    copies[i].bytes = static_cast<size_t>(*size);
    needed += (copies[i].bytes + checkpoint::snapshot_alignment - 1) / checkpoint::snapshot_alignment *
              checkpoint::snapshot_alignment;
  }
  const size_t given = *bytes;
  *bytes = needed;
  if (memory == nullptr) return HVD_OK;
  if (given < needed)
    return fail(ErrorCode::invalid_argument, "hvd_checkpoint_copy: the tensors need " + std::to_string(needed) +
                                                 " bytes of memory, and got " + std::to_string(given));
  std::vector<checkpoint::Copy> with_source = copies;
  std::erase_if(with_source, [](const checkpoint::Copy& copy) { return copy.from == nullptr; });
  checkpoint::copy_all(with_source);
  for (size_t i = 0; i < count; ++i)
    if (copies[i].bytes > 0) hvd::api::element(entries, i)->data = copies[i].to;
  return HVD_OK;
}
