#pragma once
// All schedulers that are files of this folder; the table is written by the build from the listing.
#include <memory>
#include <span>

#include "schedulers/scheduler.hpp"

namespace hvd::schedulers {

struct Maker {
  const char* name;
  std::unique_ptr<Scheduler> (*make)();
};
std::span<const Maker> registry();

}  // namespace hvd::schedulers
