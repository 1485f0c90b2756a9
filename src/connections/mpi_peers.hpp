#pragma once
// The ranks of a job as processes of one MPI. All ranks agree on it before links are made; if they do not, there is
// none.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/deadline.hpp"
#include "base/group.hpp"
#include "base/result.hpp"
#include "base/world.hpp"
#include "bootstrap/bootstrap.hpp"
#include "native/mpi/process.hpp"

namespace hvd::connections {

// What one rank knows about its MPI; travels as text.
struct MpiCard {
  std::string refusal;       // why this rank has no MPI; empty if it has one
  std::string version;       // of the ABI and the library
  int rank = 0, size = 0;    // in the communicator that the ranks are looked up in
  bool running = false;      // it was started, by the program or here; rank and size are known only then
  bool over_bridge = false;  // it is to be started, and needs our bridge as its PMI server
  std::string space;         // how a bridge names the job's values (rank 0's counts)
  bool wanted = false;       // also between the ranks of one node (HOROVOD_MPI)
  // "172.17.0.1/docker0 10.0.0.3/eth0": the interfaces to other hosts that the MPI may choose from when it is started.
  // Empty if it runs already, has a fabric, or is told what to take.
  std::string addresses;

  bootstrap::Card encode() const;
  static Result<MpiCard> decode(const bootstrap::CardView& card);
};

// MPI's rank of each rank of ours. An error, equal on all ranks, if the cards do not describe one MPI world of exactly
// these ranks.
Result<std::vector<int>> match_ranks(const World& world, const std::vector<MpiCard>& cards);

class MpiPeers {
 public:
  // `base` holds exactly the ranks of the job; null: MPI's own world.
  struct Request {
    const World* world = nullptr;
    const Config* config = nullptr;
    const Environment* environment = nullptr;
    std::shared_ptr<mpi::Communicator> base;
  };
  // Whether the ranks should use MPI at all: a pure function of what is equal on all ranks. (A user who sets
  // HOROVOD_MPI sets it on all ranks.)
  static bool is_wanted(const World& world, const Config& config, bool has_base);
  // Collective over the job, blocking, on the thread that calls init. The ranks tell each other which MPI they have. If
  // it is the same everywhere, it is started where it does not run yet, and the ranks compare their numbers in it.
  // Null, and one line in the log of rank 0, if no MPI fits; an error if HOROVOD_MPI demands one.
  static Result<std::shared_ptr<MpiPeers>> meet(const Request& request, bootstrap::Bootstrap& bootstrap,
                                                Deadline deadline);

  MpiPeers(const mpi::MpiPlugin& calls, std::shared_ptr<mpi::Communicator> base, std::vector<int> mpi_ranks,
           bool also_in_a_node)
      : calls_(calls), base_(std::move(base)), mpi_ranks_(std::move(mpi_ranks)), also_in_a_node_(also_in_a_node) {}

  const mpi::MpiPlugin& calls() const { return calls_; }
  // Between nodes MPI is used always; inside a node if the user says so.
  bool also_in_a_node() const { return also_in_a_node_; }
  // The action is called on the thread that ends MPI, when the program does so while the result lives.
  std::shared_ptr<void> before_finalize(std::function<void()> action) const {
    return std::make_shared<mpi::FinalizeWatch>(calls_, std::move(action));
  }
  // Blocking and collective over the group: a communicator whose ranks are the group's seats.
  Result<std::unique_ptr<mpi::Communicator>> connect(const Group& group, std::string_view name) const;

 private:
  const mpi::MpiPlugin& calls_;
  std::shared_ptr<mpi::Communicator> base_;
  std::vector<int> mpi_ranks_;  // by rank
  bool also_in_a_node_;
};

}  // namespace hvd::connections
