#pragma once
// Who wants to know what happens to operations: the timeline, tests. They come and go while the runtime runs
// (observers/registry.hpp).
#include <string_view>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "runtime/operation.hpp"

namespace hvd::runtime {

// Called on the engine's thread; must not block, nor call back. What is handed over is valid during the call. Who wants
// to hear of some events alone overrides those.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void submitted(const Operation& /*operation*/) {}
  // On the leader of a node: a rank of it has asked for this op by name, or all nodes of a subtree below have: then it
  // is one of their ranks. Only for what has no slot yet. Who arrives at a slot turns over a bit, which nobody watches:
  // a rank's own observers know when it did (submitted).
  virtual void ready(ProcessSetId /*set*/, std::string_view /*name*/, Rank /*rank*/) {}
  // All ranks have submitted it; it is part of this batch. Once for every operation of the batch, one after the other.
  virtual void agreed(const Operation& /*operation*/, Sequence /*batch*/) {}
  // What the batch is about before its data moves, as EXCHANGE_SIZES. Ends with the next stage(), started() or finished().
  virtual void stage(Sequence /*batch*/, std::string_view /*what*/) {}
  // Its data begins to move: through what (empty for a rank alone), and how.
  virtual void started(Sequence /*batch*/, std::string_view /*transport*/, std::string_view /*algorithm*/) {}
  // Once for every operation of the batch, one after the other.
  virtual void finished(const Operation& /*operation*/, Sequence /*batch*/) {}
  // At any time after submitted().
  virtual void failed(const Operation& /*operation*/, const Error& /*error*/) {}
};

}  // namespace hvd::runtime
