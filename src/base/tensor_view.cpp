#include "base/tensor_view.hpp"

namespace hvd {

const char* name_of(DeviceKind kind) noexcept {
  return kind == DeviceKind::host ? "host" : "cuda";
}

}  // namespace hvd
