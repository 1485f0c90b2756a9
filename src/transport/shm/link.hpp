#pragma once
// The link over shared memory: messages, and collectives that work without messages.
#include <memory>

#include "transport/shm/link_state.hpp"
#include "transport/transport.hpp"

namespace hvd::transport::shm {

std::unique_ptr<Link> make_link(std::unique_ptr<LinkState> state);

}  // namespace hvd::transport::shm
