#include "launcher/checkpoints/safetensors.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/text/json_text.hpp"
#include "native/posix/files/file_in_place.hpp"

namespace hvd::launcher {
namespace {

using checkpoint::Entry;
using checkpoint::Tensor;

// Returns null for a type that the format has no name for.
const char* name_in_format(std::string_view dtype) {
  constexpr struct {
    const char *ours, *theirs;
  } names[] = {{"bool", "BOOL"},
               {"uint8", "U8"},
               {"int8", "I8"},
               {"uint16", "U16"},
               {"int16", "I16"},
               {"uint32", "U32"},
               {"int32", "I32"},
               {"uint64", "U64"},
               {"int64", "I64"},
               {"float16", "F16"},
               {"bfloat16", "BF16"},
               {"float32", "F32"},
               {"float64", "F64"},
               {"complex64", "C64"},
               {"float8_e4m3fn", "F8_E4M3"},
               {"float8_e5m2", "F8_E5M2"},
               {"float8_e8m0fnu", "F8_E8M0"}};
  for (const auto& row : names)
    if (dtype == row.ours) return row.theirs;
  return nullptr;
}

struct Member {
  const Entry* entry;
  std::uint64_t offset, bytes;
};

}  // namespace

Result<std::size_t> export_safetensors(const checkpoint::Reader& reader, const std::string& group,
                                       const std::string& path) {
  std::string inside = group.ends_with('/') ? group : group + "/";
  std::vector<Member> members;
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  std::uint64_t offset = 0;
  for (const Entry& entry : reader.state()) {
    const auto* tensor = std::get_if<Tensor>(&entry.content);
    if (tensor == nullptr || !entry.path.starts_with(inside)) continue;
    const char* type = name_in_format(tensor->dtype);
    if (type == nullptr)
      return Error(ErrorCode::unsupported, entry.path + " is of type " + tensor->dtype + ", which safetensors lacks");
    auto bytes = static_cast<std::uint64_t>(checkpoint::bytes_of(*tensor).value());
    std::string shape;
    for (std::int64_t extent : tensor->shape) shape += (shape.empty() ? "" : ",") + std::to_string(extent);
    header += "," + in_json_quotes(checkpoint::unescape(std::string_view(entry.path).substr(inside.size()))) +
              ":{\"dtype\":\"" + type + "\",\"shape\":[" + shape + "],\"data_offsets\":[" + std::to_string(offset) +
              "," + std::to_string(offset + bytes) + "]}";
    members.push_back({&entry, offset, bytes});
    offset += bytes;
  }
  if (members.empty()) return Error(ErrorCode::invalid_argument, reader.path() + " has no tensors in " + group);
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  auto file = posix::FileInPlace::create(path);
  if (!file) return file.error();
  HVD_RETURN_IF_ERROR(file->reserve(8 + header.size() + offset));
  const std::uint64_t header_size = header.size();
  HVD_RETURN_IF_ERROR(file->write(std::as_bytes(std::span(&header_size, 1)), 0));
  HVD_RETURN_IF_ERROR(file->write(as_bytes(header), 8));
  Buffer buffer;
  for (const Member& member : members) {
    buffer.resize(member.bytes);
    HVD_RETURN_IF_ERROR(reader.read(member.entry->path, buffer.data(), member.bytes));
    HVD_RETURN_IF_ERROR(file->write(buffer, 8 + header.size() + member.offset));
  }
  HVD_RETURN_IF_ERROR(file->commit(""));
  return members.size();
}

}  // namespace hvd::launcher
