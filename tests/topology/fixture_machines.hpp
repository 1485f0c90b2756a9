#pragma once
// Loads the machines of tests/fixtures/hwloc.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "topology/machine.hpp"

namespace hvd::topology {

inline std::string fixture_path(const std::string& name) {
  return std::string(HVD_SOURCE_DIR) + "/tests/fixtures/hwloc/" + name + ".xml";
}

// Returns nothing in a build without hwloc. Skip the test then.
inline std::optional<Machine> fixture_machine(const std::string& name) {
  auto machine = read_machine_from_xml(fixture_path(name), Environment());
  if (machine) return std::move(*machine);
#ifdef HVD_HAS_HWLOC
  ADD_FAILURE() << name << ": " << machine.error().message;
#endif
  return std::nullopt;
}

}  // namespace hvd::topology
