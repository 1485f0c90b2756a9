#pragma once
// All transports that are files of this folder; the table is written by the build from the listing.
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
