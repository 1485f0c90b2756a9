#pragma once
// All algorithms that have a file in this folder. The build makes the table from the list of files.
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
