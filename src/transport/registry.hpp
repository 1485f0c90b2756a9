#pragma once
// All transports that have a file in this folder. The build makes the table from the list of files.
#include <memory>
#include <span>

#include "transport/transport.hpp"

namespace hvd::transport {

struct Maker {
  const char* name;
  std::unique_ptr<Transport> (*make)(const Surroundings&);
};
std::span<const Maker> registry();

}  // namespace hvd::transport
