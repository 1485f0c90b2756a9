#pragma once
// The list of all bootstraps that are files of this folder. The build writes the table from the list of files.
#include <memory>
#include <span>

#include "bootstrap/bootstrap.hpp"

namespace hvd::bootstrap {

struct Maker {
  const char* name;
  std::unique_ptr<Bootstrap> (*make)();
};
std::span<const Maker> registry();

}  // namespace hvd::bootstrap
