#pragma once
// The content of a checkpoint: a tree of groups, values and tensors. It is stored as a list of entries with paths.
//
// A path consists of names separated by slashes, such as "/model/layer1.weight". escape() writes a slash inside a name
// as %2F.
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"

namespace hvd::checkpoint {

constexpr std::size_t most_dimensions = 32;  // HDF5's H5S_MAX_RANK

// A tensor. When it is written, `data` is the caller's memory. When it was read, only type and shape are set.
struct Tensor {
  std::string dtype;  // the element type, such as "float32"; see element_type.hpp
  std::vector<std::int64_t> shape;
  const void* data = nullptr;
  std::string unit;  // the unit of the values, such as "m/s"; empty: none
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
  std::string kind;  // kind of object in the program ("list", "ndarray"); empty: none
  Content content;
  friend bool operator==(const Entry&, const Entry&) = default;
};
using State = std::vector<Entry>;

// Turns a name into a part of a path: "/", "%" and characters that HDF5 does not allow in names become %XX.
std::string escape(std::string_view name);
// The inverse of escape(). A "%" that is not followed by two hexadecimal digits is not changed.
std::string unescape(std::string_view part);

// parent_of() returns the path of the entry that contains this one ("/" for "/model"), and last_part_of() the last
// name.
std::string_view parent_of(std::string_view path);
std::string_view last_part_of(std::string_view path);

// Returns the size of the tensor in bytes. The error says what is wrong with its type or shape.
Result<std::int64_t> bytes_of(const Tensor& tensor);

// Checks that the state can be written: paths, types and shapes are valid, no path occurs twice, and every parent is a
// group.
Status check(const State& state);

}  // namespace hvd::checkpoint
