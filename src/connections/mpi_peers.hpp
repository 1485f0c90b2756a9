#pragma once
// The ranks of a job as processes of one MPI. All ranks agree on the MPI before links are made. If they do not agree,
// no MPI is used.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/group.hpp"
#include "base/result.hpp"
#include "base/settings/config.hpp"
#include "base/world.hpp"
#include "bootstrap/bootstrap.hpp"
#include "native/mpi/process.hpp"

namespace hvd::connections {

// One rank's knowledge about its MPI. It travels as text.
struct MpiCard {
  std::string refusal;       // why this rank has no MPI; empty if it has one
  std::string version;       // versions of the ABI and of the library
  int rank = 0, size = 0;    // this process's rank in the communicator in which the ranks are looked up, and its size
  bool running = false;      // the program or this runtime started it; only then rank and size are known
  bool over_bridge = false;  // the MPI is not started yet, and needs our bridge as its PMI server
  std::string space;         // the name of a bridge for the job's values (that of rank 0 is used)
  bool wanted = false;       // MPI is also wanted between ranks of one node (HOROVOD_MPI)
  // "172.17.0.1/docker0 10.0.0.3/eth0": the interfaces to other hosts among which the MPI may choose at its start.
  // Empty if the MPI already runs, has a fabric, or was told what to use.
  std::string addresses;

  bootstrap::Card encode() const;
  static Result<MpiCard> decode(const bootstrap::CardView& card);
};

// Returns MPI's rank for each rank of the job. Fails, equally on all ranks, if the cards do not describe one MPI world
// of exactly these ranks.
Result<std::vector<int>> match_ranks(const World& world, const std::vector<MpiCard>& cards);

class MpiPeers {
 public:
  // `base` is a communicator of exactly the job's ranks. Null means MPI's own world.
  struct Request {
    const World* world = nullptr;
    const Config* config = nullptr;
    const Environment* environment = nullptr;
    std::shared_ptr<mpi::Communicator> base;
  };
  // True if the ranks should use MPI. A pure function of values that are equal on all ranks. (A user who sets
  // HOROVOD_MPI sets it on all ranks.)
  static bool is_wanted(const World& world, const Config& config, bool has_base);
  // Collective over the job. Blocks on the thread that calls init. The ranks tell each other which MPI they have. If
  // all have the same, it is started where it does not run yet, and the ranks compare their numbers in it. If no MPI
  // fits, returns null, and rank 0 logs one line. If HOROVOD_MPI demands an MPI, that is an error.
  static Result<std::shared_ptr<MpiPeers>> meet(const Request& request, bootstrap::Bootstrap& bootstrap,
                                                Deadline deadline);

  MpiPeers(const mpi::MpiPlugin& calls, std::shared_ptr<mpi::Communicator> base, std::vector<int> mpi_ranks,
           bool also_in_a_node)
      : calls_(calls), base_(std::move(base)), mpi_ranks_(std::move(mpi_ranks)), also_in_a_node_(also_in_a_node) {}

  const mpi::MpiPlugin& calls() const { return calls_; }
  // MPI is always used between nodes, and inside a node only if the user asks for it.
  bool also_in_a_node() const { return also_in_a_node_; }
  // If the program ends MPI while the returned object lives, `action` is called on the thread that ends MPI.
  std::shared_ptr<void> before_finalize(std::function<void()> action) const {
    return std::make_shared<mpi::FinalizeWatch>(calls_, std::move(action));
  }
  // Returns a communicator whose ranks are the group's seats. Blocking, and collective over the group.
  Result<std::unique_ptr<mpi::Communicator>> connect(const Group& group, std::string_view name) const;

 private:
  const mpi::MpiPlugin& calls_;
  std::shared_ptr<mpi::Communicator> base_;
  std::vector<int> mpi_ranks_;  // MPI's rank for each rank of the job
  bool also_in_a_node_;
};

}  // namespace hvd::connections
