#pragma once
// One way of being started: tells this process its rank and carries small values between the ranks until they have
// links of their own. Used on the thread that calls init, never on the engine's.
#include <optional>
#include <string_view>

#include "base/bytes.hpp"
#include "base/config.hpp"
#include "base/deadline.hpp"
#include "base/environment.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "bootstrap/meeting/cards.hpp"

namespace hvd::bootstrap {

// What a launcher tells a process. The rest of the World is learned by meeting (meeting.hpp).
struct Identity {
  Rank rank;
  int size = 1;
  std::string job;  // equal on all ranks, different from every other job on the machine
};

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  virtual const char* name() const = 0;
  // Cheap and without side effects: nothing is loaded or asked. "Not mine" is not an error.
  virtual bool detected(const Environment& environment) const = 0;
  // Asked of a bootstrap that was detected, before join(): whether it still applies after a closer look. May load a
  // library.
  virtual bool confirmed(const Environment&, const Config&) { return true; }
  // ErrorCode::unsupported: something that it needs is missing here (a library, a server); another bootstrap may still
  // work.
  virtual Result<Identity> join(const Environment& environment, const Config& config) = 0;
  // Values put before a fence can be got after it. A key is used once in the life of a process.
  virtual Status put(std::string_view key, ConstBytes value) = 0;
  virtual Result<Buffer> get(Rank from, std::string_view key, Deadline deadline) = 0;
  // Returns when all ranks have called it, and everything put before it can be got.
  virtual Status fence(Deadline deadline) = 0;
  // Collective: each rank tells all others something, in one go. Nothing if this bootstrap has no better way than
  // put(), fence() and a get() of each rank's value: bootstrap::exchange() (meeting/exchange.hpp) chooses.
  virtual std::optional<Result<Cards>> exchange(std::string_view, const Card&, Deadline) { return std::nullopt; }
  // This rank has links of its own now, or has failed to make them: what only the meeting needed may be dropped. The
  // next fence() begins another meeting.
  virtual void tidy_up() noexcept {}
  // Asks the launcher to end the whole job.
  virtual void abort(std::string_view reason) noexcept = 0;
};

}  // namespace hvd::bootstrap
