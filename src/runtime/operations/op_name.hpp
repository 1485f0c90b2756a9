#pragma once
// The identity of an operation: its process set, and its name in that set.
#include <compare>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "base/ids.hpp"
#include "base/recently_used.hpp"

namespace hvd::runtime {

struct OpNameView {
  ProcessSetId set;
  std::string_view name;

  OpNameView() = default;
  OpNameView(ProcessSetId its_set, std::string_view its_name) : set(its_set), name(its_name) {}
  OpNameView(std::string_view in_world) : name(in_world) {}
  OpNameView(const std::string& in_world) : name(in_world) {}
  OpNameView(const char* in_world) : name(in_world) {}
  friend auto operator<=>(const OpNameView&, const OpNameView&) = default;
};

struct OpName {
  ProcessSetId set;
  std::string name;

  OpName() = default;
  explicit OpName(OpNameView view) : set(view.set), name(view.name) {}
  operator OpNameView() const { return {set, name}; }
  friend bool operator==(const OpName& a, const OpName& b) { return OpNameView(a) == OpNameView(b); }
};

struct OrderOfNames {
  using is_transparent = void;
  bool operator()(OpNameView a, OpNameView b) const { return a < b; }
};
struct HashOfName {
  std::size_t operator()(const OpNameView& it) const {
    return mix_hash(std::hash<std::string_view>{}(it.name), static_cast<std::size_t>(it.set.value));
  }
};

}  // namespace hvd::runtime
