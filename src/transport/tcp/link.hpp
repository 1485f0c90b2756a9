#pragma once
// The links of the tcp transport.
#include <memory>
#include <string>

#include "transport/transport.hpp"

namespace hvd::transport::tcp {

// Connections are made when a seat is first sent to or received from: a group of thousands starts as fast as one of
// two.
std::unique_ptr<Link> make_link(const Surroundings& surroundings, const Group& group, std::string name);

}  // namespace hvd::transport::tcp
