#pragma once
// The links of the tcp transport.
#include <memory>
#include <string>

#include "transport/transport.hpp"

namespace hvd::transport::tcp {

// A connection to a seat is made when something is first sent to that seat or received from it. So a group of thousands
// of ranks starts as fast as a group of two.
std::unique_ptr<Link> make_link(const Surroundings& surroundings, const Group& group, std::string name);

}  // namespace hvd::transport::tcp
