#pragma once
// The list of all schedulers that are files of this folder. The build writes the table from the list of files.
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
