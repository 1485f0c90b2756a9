#pragma once
// All algorithms that are files of this folder; the table is written by the build from the listing.
#include <memory>
#include <span>

#include "collectives/algorithm.hpp"

namespace hvd::collectives {

struct Maker {
  const char* name;
  std::unique_ptr<Algorithm> (*make)();
};
std::span<const Maker> registry();

}  // namespace hvd::collectives
