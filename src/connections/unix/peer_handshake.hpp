#pragma once
// Lets the processes of a node check that the other end of a unix socket is the expected rank.
#include <vector>

#include "base/deadline.hpp"
#include "base/group.hpp"
#include "base/result.hpp"
#include "base/world.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::connections {

// Returns a connection to every other seat of the node, by seat; that of this seat is empty. Collective. Blocks until
// the deadline at most.
//  1. A rank connects to all lower seats and sends a greeting: job, epoch, rank.
//  2. It accepts connections from all higher seats. A process of another user is dropped at once. A process with a
//     wrong greeting is dropped when the greeting has come. All others get this rank's greeting.
//  3. A connection counts when the greeting of its other end has come.
Result<std::vector<posix::FileDescriptor>> shake_hands(const World& world, const Group& node,
                                                       posix::FileDescriptor listener, Deadline deadline);

}  // namespace hvd::connections
