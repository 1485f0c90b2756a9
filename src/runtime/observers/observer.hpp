#pragma once
// The interface of code that is told what happens to operations: the timeline and tests. Observers can be added and
// removed while the runtime runs (observers/registry.hpp).
#include <string_view>

#include "base/deadline.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/stages.hpp"
#include "runtime/operations/operation.hpp"

namespace hvd::runtime {

// The engine's thread calls these functions. They must not block and must not call the runtime. Arguments are valid
// during the call. An observer overrides the functions for the events that it wants.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void submitted(const Operation& /*operation*/) {}
  // Only on the leader of a node, and only for ops that have no slot yet: a rank of the node has asked for this op by
  // name. If all nodes of a subtree have asked, the rank is one of theirs. For an op with a slot a rank only turns over
  // a bit, and that is not recorded; the rank's own observers get submitted().
  virtual void ready(ProcessSetId /*set*/, std::string_view /*name*/, Rank /*rank*/) {}
  // All ranks have submitted the operation, and it is part of this batch. Called for every operation of the batch, one
  // after the other.
  virtual void agreed(const Operation& /*operation*/, Sequence /*batch*/) {}
  // The batch begins a stage before its data move, such as EXCHANGE_SIZES. The stage ends with the next stage(),
  // started() or finished().
  virtual void stage(Sequence /*batch*/, std::string_view /*what*/) {}
  // The links that the batch needs, of a device, are being made. The next stage(), started() or finished() ends this.
  virtual void connecting(Sequence /*batch*/, std::string_view /*transport*/) {}
  // The data of the batch begin to move, over this transport (empty if the rank is alone) and by this algorithm.
  virtual void started(Sequence /*batch*/, std::string_view /*transport*/, std::string_view /*algorithm*/) {}
  // issued(): the rest of the batch was queued on a device. ended(): the device has done it. These are the host's
  // times. `name` is that of its first operation. finished() comes between them for operations that have streams.
  // ended() does not come if the batch was aborted.
  virtual void issued(Sequence /*batch*/, std::string_view /*device*/, std::string_view /*name*/) {}
  virtual void ended(Sequence /*batch*/) {}
  // True for observers that want the next two. Stages may cost events of the device, so they are noted on demand.
  virtual bool wants_stages() const { return false; }
  // The batch goes through the device in stages, before issued() and after it; `name` is that of its first operation.
  virtual void stages_began(Sequence /*batch*/, std::string_view /*device*/, std::string_view /*name*/,
                            Clock::time_point /*at*/) {}
  // The batch has had this stage, between stages_began() and ended().
  virtual void stage_ended(Sequence /*batch*/, const StageOnDevice& /*stage*/, Clock::time_point /*begin*/,
                           Clock::time_point /*end*/) {}
  // Called for every operation of the batch, one after the other.
  virtual void finished(const Operation& /*operation*/, Sequence /*batch*/) {}
  // May come at any time after submitted().
  virtual void failed(const Operation& /*operation*/, const Error& /*error*/) {}
};

}  // namespace hvd::runtime
