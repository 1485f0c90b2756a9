#pragma once
#include "state.hpp"

namespace hvd::doubles::nccl {

// Adds a call to the group that is open on this thread, or makes a group of it.
Code add_to_group(Communicator* communicator, Call call, void* stream);

}  // namespace hvd::doubles::nccl
