#pragma once
// All bootstraps that are files of this folder; the table is written by the build from the listing.
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
