#pragma once
// Who wants to know what happens to operations: timeline, stall inspector, tests.
#include <span>
#include <string_view>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "runtime/signature.hpp"

namespace hvd::runtime {

// Called on the engine's thread; must not block and must not call back. Names are valid during the call.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void submitted(std::string_view name, const Signature& signature) = 0;
  // On the leader of a node, when a rank of it asked for this op by name, or all nodes of a subtree below have: then
  // it is one of their ranks.
  virtual void ready(std::string_view name, Rank rank) = 0;
  virtual void agreed(std::string_view name, Sequence batch) = 0;
  virtual void started(Sequence batch, std::string_view algorithm) = 0;
  virtual void finished(std::string_view name, Sequence batch) = 0;
  virtual void failed(std::string_view name, const Error& error) = 0;
};

}  // namespace hvd::runtime
