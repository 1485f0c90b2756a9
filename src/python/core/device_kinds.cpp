#include "python/core/device_kinds.hpp"

#include <cstring>

namespace hvd::python {

std::optional<hvd_device_facts> facts_of(hvd_device device) {
  hvd_device_facts facts{};
  facts.struct_size = sizeof facts;
  if (hvd_get_device_facts(device, &facts) != HVD_OK) return std::nullopt;
  return facts;
}

std::optional<hvd_device> device_named(const char* name) {
  for (int number = HVD_HOST;; ++number) {
    const auto device = static_cast<hvd_device>(number);
    const auto facts = facts_of(device);
    if (!facts) return std::nullopt;
    if (std::strcmp(facts->name, name) == 0) return device;
  }
}

}  // namespace hvd::python
