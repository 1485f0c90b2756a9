#pragma once
// What a checkpoint holds: a tree of groups, values and tensors, as a list of entries with paths.
//
// A path is "/model/layer1.weight": names separated by slashes. A slash inside of a name is written %2F; escape() does
// it.
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"

namespace hvd::checkpoint {

// Memory of the caller's when it is to be written; when it was read, only type and shape.
struct Tensor {
  std::string dtype;  // "float32"; see element_type.hpp
  std::vector<std::int64_t> shape;
  const void* data = nullptr;
  std::string unit;  // "m/s"; empty: none
  friend bool operator==(const Tensor&, const Tensor&) = default;
};
struct Group {
  friend bool operator==(const Group&, const Group&) = default;
};
struct None {
  friend bool operator==(const None&, const None&) = default;
};
using Content = std::variant<Group, None, bool, std::int64_t, double, std::string, Tensor>;

struct Entry {
  std::string path;
  std::string kind;  // what the group or tensor stands for in the program ("list", "ndarray"); empty: nothing special
  Content content;
  friend bool operator==(const Entry&, const Entry&) = default;
};
using State = std::vector<Entry>;

// A name as a part of a path: "/" and "%" in it, and what HDF5 does not take for a name, become %XX.
std::string escape(std::string_view name);
// Its inverse; "%" before anything but two hexadecimal digits stays.
std::string unescape(std::string_view part);

// The path of the entry around it; "/" for "/model". And the last part.
std::string_view parent_of(std::string_view path);
std::string_view last_part_of(std::string_view path);

// Bytes of the tensor. An error says what is wrong with its type or shape.
Result<std::int64_t> bytes_of(const Tensor& tensor);

// Whether everything in it can be written: paths, types, shapes, nothing twice, nothing inside of what is no group.
Status check(const State& state);

}  // namespace hvd::checkpoint
