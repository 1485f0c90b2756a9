// Moves bytes between ranks that are processes of one MPI. Each group has a communicator of its own. The engine's
// thread calls MPI and never waits in a call. Only the creation of a communicator runs on a separate thread, because
// MPI has no suitable call for it that does not block. That thread ends with the call.
#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "connections/mpi_peers.hpp"
#include "native/posix/processes/thread.hpp"
#include "transport/mpi/link.hpp"

namespace hvd::transport {
namespace {

bool is_on_one_node(const World& world, const Group& group) {
  for (Rank rank : group.ranks)
    if (world.member(rank).node != world.member(group.ranks.front()).node) return false;
  return true;
}

class MpiConnecting final : public Connecting {
 public:
  MpiConnecting(const Surroundings& surroundings, const Group& group, std::string_view name)
      : surroundings_(surroundings), group_(group), outcome_(std::make_shared<Outcome>()) {
    auto started =
        posix::start_thread("hvd-mpi", [outcome = outcome_, peers = surroundings.ask<connections::MpiPeers>(),
                                        wake = surroundings.wake, group, name = std::string(name)] {
          auto made = peers->connect(group, name);
          if (made) outcome->communicator = std::move(*made);
          else outcome->failure = std::move(made.error());
          // If the link was given up, the wake word may not exist any more.
          if (outcome->state.exchange(is_made) == under_way) wake->post();
        });
    if (started) {
      thread_ = std::move(*started);
    } else {
      outcome_->failure = std::move(started.error());
      outcome_->state = is_made;
    }
  }
  ~MpiConnecting() override {
    if (outcome_->state.exchange(is_given_up) == under_way) {
      hvd::mpi::Process::leave_open();
      thread_.detach();
    } else if (thread_.joinable()) {
      thread_.join();
    }
  }

  Progress step() override {
    if (outcome_->state.load(std::memory_order_acquire) == under_way) return Progress::pending;
    return outcome_->communicator ? Progress::done : Progress::failed;
  }
  std::unique_ptr<Link> take() override {
    return std::make_unique<over_mpi::MpiLink>(surroundings_, group_, std::move(outcome_->communicator));
  }
  const Error& failure() const override { return outcome_->failure; }

 private:
  enum State : int { under_way, is_made, is_given_up };
  // The thread owns this struct until it reports that it is done.
  struct Outcome {
    std::unique_ptr<mpi::Communicator> communicator;
    Error failure{ErrorCode::system, "MPI"};
    std::atomic<int> state{under_way};
  };

  const Surroundings surroundings_;
  const Group group_;
  std::shared_ptr<Outcome> outcome_;
  std::thread thread_;
};

class Mpi final : public Transport {
 public:
  explicit Mpi(const Surroundings& surroundings) : surroundings_(surroundings) {}

  const char* name() const override { return "mpi"; }

  bool reaches(const Group& group, DeviceKind kind) const override {
    if (surroundings_.ask<connections::MpiPeers>() == nullptr || surroundings_.world == nullptr ||
        kind != DeviceKind::host)
      return false;
    return surroundings_.ask<connections::MpiPeers>()->also_in_a_node() || !is_on_one_node(*surroundings_.world, group);
  }

  Result<std::unique_ptr<Connecting>> connect(const Group& group, std::string_view name, Exchange&) override {
    if (!group.has_me() || !reaches(group, DeviceKind::host))
      return Error(ErrorCode::invalid_argument, "the link '" + std::string(name) +
                                                    "' was asked of mpi by a rank that is no member of its group, or "
                                                    "without an MPI; ask reaches() first");
    return std::unique_ptr<Connecting>(std::make_unique<MpiConnecting>(surroundings_, group, name));
  }

 private:
  const Surroundings surroundings_;
};

}  // namespace

std::unique_ptr<Transport> make_mpi(const Surroundings& surroundings) {
  return std::make_unique<Mpi>(surroundings);
}

}  // namespace hvd::transport
