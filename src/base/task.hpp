#pragma once
// A collective that runs in small steps. It is planned once and then restarted for every batch of its kind, without
// allocating memory.
#include <cstdint>
#include <span>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/stages.hpp"
#include "base/tensor_view.hpp"

namespace hvd {

enum class Progress : std::uint8_t {
  pending,  // waits for a peer or a device; step again
  done,
  issued,  // all remaining work happens on a device: event() says when it ends. The task may be restarted at once
  failed,  // failure() gives the reason; the task has ended
};

// One thread owns and steps a task. The task borrows the segments' memory from restart() until step() returns done or
// failed. After step() returned issued, the device still uses the memory until the event. The spans themselves are read
// only during restart(). If a task has queued work on a device, its destructor waits until that work no longer touches
// memory.
class Task {
 public:
  virtual ~Task() = default;
  // Does as much as is possible now. Never blocks.
  virtual Progress step() = 0;
  // Begins the next batch. `sequence` grows with every call and is equal on all ranks. The number of segments may
  // differ between batches. A plan fixes only verb, type, op and root.
  virtual void restart(std::span<const Segment> in, std::span<const Segment> out, Sequence sequence) = 0;
  // Sets the scales that are used from the next restart() on. Before the first call the scales of the planned
  // collective are used. A program may need new scales in every step (1/tokens). Verbs that do not reduce ignore them.
  virtual void rescale(double /*prescale*/, double /*postscale*/) {}
  // Sets the numbers of elements, by seat, that are used from the next restart() on. The spans are copied.
  //  alltoall        what this seat sends to each seat and receives from each seat.
  //  allgather       `received` is what each seat contributes.
  //  reduce_scatter  `sent` is what each seat gets.
  // Of the last two the list may be empty: the elements are then divided evenly (transport::share_of), as they are
  // before the first call. Other verbs ignore the numbers.
  virtual void resize(std::span<const std::int64_t> /*sent*/, std::span<const std::int64_t> /*received*/) {}
  // May be called after step() has returned failed.
  virtual const Error& failure() const = 0;
  // After step() returned issued: the end of all work. While the task is pending: the event on a device that it waits
  // for.
  virtual Event event() const { return {}; }
  // From the next restart() on the task notes the stages of its work on the device, or no longer notes them. A stage
  // may cost an event. Most tasks never note any.
  virtual void note_stages(bool /*wanted*/) {}
  // After step(), until the next restart(): what was noted since restart(). Those of a part are in their order.
  virtual std::span<const StageOnDevice> stages() const { return {}; }
  // True if nothing is left that has to be launched on links of a device in one order on all ranks (runtime/lanes/
  // turnstile). Asked after step(). Tasks that launch at once, or over host links alone, need not say anything.
  virtual bool has_launched() const { return true; }
  // Returns the seat that the task waits for, which reports about stalls name. Seat{-1} if the task does not know.
  virtual Seat waiting_for() const { return Seat{-1}; }
};

}  // namespace hvd
