#pragma once
// Binds the engine's thread to the core that HOROVOD_THREAD_AFFINITY names for this rank.
#include "base/settings/config.hpp"
#include "base/world.hpp"
#include "topology/layout.hpp"

namespace hvd::runtime {

// Binds the calling thread to the core that HOROVOD_THREAD_AFFINITY names for this local rank. If the list does not
// fit, an error is logged, and the thread is not bound.
void choose_core(const World& world, const Config& config, const topology::Layout& layout);

}  // namespace hvd::runtime
