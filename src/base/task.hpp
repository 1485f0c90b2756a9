#pragma once
// A collective in small steps: planned once, then restarted for every batch of its kind without allocating.
#include <cstdint>
#include <span>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/tensor_view.hpp"

namespace hvd {

enum class Progress : std::uint8_t {
  pending,  // waits for a peer; step again
  done,
  issued,  // what is left happens on a device: event() says when it is over. The task may be restarted at once
  failed,  // failure() says why; the task is over
};

// Owned and stepped by one thread. Between restart() and the step() that returns done or failed the task borrows
// the segments' memory, and what was issued borrows it until its event is there; the spans themselves are read during
// restart() only. Where a task has queued work on a device, its destructor waits until that touches no memory any more.
class Task {
 public:
  virtual ~Task() = default;
  // Never blocks. Does as much as can be done now.
  virtual Progress step() = 0;
  // Begins the next batch. `sequence` rises from call to call and is equal on all ranks. The batch may have any number
  // of segments; a plan fixes verb, type, op and root only (and counts, for allgather and reduce_scatter).
  virtual void restart(std::span<const Segment> in, std::span<const Segment> out, Sequence sequence) = 0;
  // The scales from the next restart() on; until then those of the planned collective count. A program may have new
  // ones in every step (1/tokens). They mean nothing to verbs that do not reduce.
  virtual void rescale(double /*prescale*/, double /*postscale*/) {}
  // Elements that this seat sends to each seat and receives from each in the next restart(). For alltoall only, whose
  // numbers may be new in every call. Copied.
  virtual void resize(std::span<const std::int64_t> /*sent*/, std::span<const std::int64_t> /*received*/) {}
  // Valid after step() returned failed.
  virtual const Error& failure() const = 0;
  // After step() returned issued: when all of it is over. While it is pending: what it waits for on a device.
  virtual Event event() const { return {}; }
  // The seat that the task waits for, for reports about stalls; Seat{-1} if it cannot tell.
  virtual Seat waiting_for() const { return Seat{-1}; }
};

}  // namespace hvd
