#pragma once
// A bootstrap is one way in which a rank joins its job. It tells this process its rank and carries small values between
// the ranks until the ranks have links. It is used on the thread that calls init, never on the engine's thread.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/deadline.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/settings/config.hpp"
#include "base/settings/environment.hpp"
#include "bootstrap/meeting/cards.hpp"

namespace hvd::bootstrap {

// What else a launcher tells a process of a job whose ranks come and go.
struct Assignment {
  int local_rank = 0, local_size = 1, cross_rank = 0, cross_size = 1;
  std::uint32_t epoch = 1;  // of the generation that begins; every generation has a higher one
  int newcomers = 0;        // how many of its ranks have no state of the training
};

// What a process of such a job tells when it asks for a place.
struct Progress {
  static constexpr std::uint8_t failed_round = 1;
  std::uint8_t cause = 0;  // 0: it has had no place yet, 1: its round failed, 2: it was told of other hosts
  std::int64_t step = 0;   // 1 + the number of its commits; 0: it has no state of the training
  bool keeps = false;      // it can write a checkpoint of its last commit, should the job end
};

// The hosts of the job change.
struct HostNews {
  static constexpr std::uint8_t keep = 4;
  double time = 0;          // seconds since 1970
  std::uint8_t change = 0;  // 1: hosts were removed, 2: added, 3: both; 4: the job ends, write a checkpoint
};

// What a launcher tells a process. The process learns the rest of the World when the ranks meet (meeting.hpp).
struct Identity {
  Rank rank;
  int size = 1;
  std::string job;  // equal on all ranks, different from every other job on the machine
  std::optional<Assignment> assignment{};
};

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  virtual const char* name() const = 0;
  // True if the ranks meet through an MPI, which therefore reaches all of them.
  virtual bool is_over_mpi() const { return false; }
  // True if the environment shows that this bootstrap is meant. The call is cheap and has no side effects: it loads no
  // library and asks no server. False is not an error.
  virtual bool detected(const Environment& environment) const = 0;
  // Called after detected() returned true and before join(). True if this bootstrap still applies after a closer look.
  // The call may load a library.
  virtual bool confirmed(const Environment&, const Config&) { return true; }
  // Fails with ErrorCode::unsupported if something that this bootstrap needs is missing here (a library, a server).
  // Another bootstrap may still work then.
  virtual Result<Identity> join(const Environment& environment, const Config& config) = 0;
  // True if the ranks come and go: join() is called before each start then, and answers with an assignment. It blocks
  // until the launcher has decided.
  virtual bool assigns() const { return false; }
  // What the next join() tells.
  virtual void set_progress(const Progress&) {}
  // Returns the news that have come since the last join(). Does not wait.
  virtual std::vector<HostNews> take_news() { return {}; }
  // get() finds the values that were put before the last fence. A key is used once in the life of a process.
  virtual Status put(std::string_view key, ConstBytes value) = 0;
  virtual Result<Buffer> get(Rank from, std::string_view key, Deadline deadline) = 0;
  // Returns when all ranks have called fence(). Everything that was put before the fence can be got then.
  virtual Status fence(Deadline deadline) = 0;
  // Collective: each rank tells all others something, in one step. Returns nullopt if this bootstrap has no better way
  // than put(), fence() and a get() of each rank's value. bootstrap::exchange() (meeting/exchange.hpp) makes the
  // choice.
  virtual std::optional<Result<Cards>> exchange(std::string_view, const Card&, Deadline) { return std::nullopt; }
  // Called when this rank has made its links, or has failed to make them. The bootstrap may drop what only the meeting
  // needed. The next fence() begins another meeting.
  virtual void tidy_up() noexcept {}
  // Asks the launcher to end the whole job.
  virtual void abort(std::string_view reason) noexcept = 0;
};

}  // namespace hvd::bootstrap
