#pragma once
// Code that is told what happens to operations: the timeline, tests. Observers come and go while the runtime runs
// (observers/registry.hpp).
#include <string_view>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "runtime/operation.hpp"

namespace hvd::runtime {

// Called on the engine's thread; must not block, nor call back. Arguments are valid during the call. An observer
// overrides the events that it wants.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void submitted(const Operation& /*operation*/) {}
  // On the leader of a node: a rank of the node has asked for this op by name, or all nodes of a subtree have, and the
  // rank is one of theirs. Only for ops that have no slot yet. For a slot a rank turns over a bit, which nobody
  // watches; a rank's own observers know when it did that (submitted).
  virtual void ready(ProcessSetId /*set*/, std::string_view /*name*/, Rank /*rank*/) {}
  // All ranks have submitted it; it is part of this batch. Once for every operation of the batch, one after the other.
  virtual void agreed(const Operation& /*operation*/, Sequence /*batch*/) {}
  // What the batch does before its data move, as EXCHANGE_SIZES. Ends with the next stage(), started() or finished().
  virtual void stage(Sequence /*batch*/, std::string_view /*what*/) {}
  // Its data begin to move: over which transport (empty for a rank alone), by which algorithm.
  virtual void started(Sequence /*batch*/, std::string_view /*transport*/, std::string_view /*algorithm*/) {}
  // Once for every operation of the batch, one after the other.
  virtual void finished(const Operation& /*operation*/, Sequence /*batch*/) {}
  // At any time after submitted().
  virtual void failed(const Operation& /*operation*/, const Error& /*error*/) {}
};

}  // namespace hvd::runtime
