#include "base/tensor_view.hpp"

#include <optional>

#include "base/closed_set.hpp"

namespace hvd {

namespace {

struct DeviceKindRow {
  const char* name;
};

constexpr std::optional<DeviceKindRow> row_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::host: return DeviceKindRow{"host"};
    case DeviceKind::cuda: return DeviceKindRow{"cuda"};
    case DeviceKind::rocm: return DeviceKindRow{"rocm"};
  }
  return std::nullopt;
}
static_assert(count_of<DeviceKind>([](DeviceKind kind) { return row_of(kind); }) == device_kind_count);

}  // namespace

const char* name_of(DeviceKind kind) noexcept {
  const auto row = row_of(kind);
  return row ? row->name : "unknown";
}

}  // namespace hvd
