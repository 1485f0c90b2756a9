#pragma once
// The last calls on links and streams of devices, when a rank ends. Libraries of devices are known to hang there.
#include <functional>
#include <vector>

#include "base/deadline.hpp"

namespace hvd::runtime {

// Makes the calls one after the other on a thread of its own ("hvd-abort"). Returns true when all have returned.
// Returns false if the deadline has passed before: no further call begins then, but the one that hangs may go on at any
// time, so nothing that it uses may be destroyed.
bool make_last_calls(std::vector<std::function<void()>> calls, Deadline deadline);

}  // namespace hvd::runtime
