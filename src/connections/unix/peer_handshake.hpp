#pragma once
// How the processes of a node find out that the other end of a unix socket is the rank that they expect.
#include <vector>

#include "base/deadline.hpp"
#include "base/group.hpp"
#include "base/result.hpp"
#include "base/world.hpp"
#include "native/posix/file_descriptor.hpp"

namespace hvd::connections {

// A connection with every other seat of the node, by seat (an empty one at my own). Collective, blocks until the
// deadline.
//  1. A rank connects to all lower seats and says who it is: job, epoch, rank.
//  2. It accepts from all higher seats. A process of another user is dropped at once, one with a wrong greeting when
//     the greeting has come; the others get the same greeting back.
//  3. A connection counts when the greeting of its other end has come.
Result<std::vector<posix::FileDescriptor>> shake_hands(const World& world, const Group& node,
                                                       posix::FileDescriptor listener, Deadline deadline);

}  // namespace hvd::connections
