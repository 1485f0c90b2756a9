#pragma once
// Tells the host that a stream has got here. The kernel begins when all earlier work of the stream is over and visible.
#include "devices/kernels/lists.hpp"
#include "devices/kernels/memory.hpp"

namespace hvd::devices::cuda {

HVD_DEVICE void signal_host(const SignalList& list, const Place& place) {
  if (place.block == 0 && place.thread == 0) store(list.word, list.value);
}

}  // namespace hvd::devices::cuda
