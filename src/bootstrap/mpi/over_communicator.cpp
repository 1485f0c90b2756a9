#include "bootstrap/mpi/over_communicator.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "bootstrap/launch/launch.hpp"
#include "native/posix/machine/fabric_devices.hpp"
#include "native/posix/machine/host_identity.hpp"
#include "native/posix/processes/thread.hpp"
#include "native/posix/sockets/tcp_address.hpp"

namespace hvd::bootstrap {
namespace {

using mpi::CollectiveCall;
using mpi::Completion;

// True if this host has a network bridge of containers. Open MPI may take such a bridge for the way to other hosts that
// have a bridge, too, and then waits forever. If MPI is started after the ranks have met, the ranks compare the
// addresses of their bridges (connections/mpi_peers). Here only the names of the interfaces are known.
bool has_bridge_of_containers(const Environment& environment) {
  if (mpi::is_told_its_interfaces(environment) || !posix::fabric_devices().empty()) return false;
  auto interfaces = posix::interfaces();
  if (!interfaces) return false;
  for (const posix::Interface& interface : *interfaces)
    for (std::string_view prefix :
         {"docker", "podman", "nerdctl", "virbr", "cni", "lxcbr", "lxdbr", "incusbr", "weave", "kube-bridge"})
      if (interface.name.starts_with(prefix)) {
        log::info("MPI is not started before the ranks have met: it may take " + interface.name +
                  " for the way to other hosts (OMPI_MCA_btl_tcp_if_include=eth0 names the right one)");
        return true;
      }
  return false;
}

// True if the launcher's PMIx server can be reached. An MPI that cannot reach the server would run alone.
bool reaches_pmix_server(const Environment& environment) {
  std::string folder = environment.get("PMIX_SERVER_TMPDIR").value_or("");
  return environment.has("PMIX_NAMESPACE") && environment.has("PMIX_RANK") && ::access(folder.c_str(), F_OK) == 0;
}

// True if MPI must be started before PMIx is asked. Some MPIs cannot be started any more once PMIx has been asked who
// this process is. If such an MPI will be wanted, it is started first, and MPI is asked who this process is.
bool goes_before_pmix(const Environment& environment, const Config& config) {
  auto launch = innermost_launch(environment);
  if (!launch || row_of(launch->launcher).serves == Serves::pmi || launch->size == 1) return false;
  MpiUse use = mpi_use(config);
  if (use.when == MpiUse::When::never) return false;
  if (use.when == MpiUse::When::between_nodes && !may_span_nodes(*launch, environment)) return false;
  auto process = mpi::Process::open(environment, config);
  if (!process || (*process)->is_running() || !(*process)->must_initialize_pmix()) return false;
  return use.when == MpiUse::When::always || !has_bridge_of_containers(environment);
}

// Limits the time of MPI_Init. Nobody can cancel an MPI_Init that waits for a rank which does not come. At the deadline
// this object reports the cause and ends the process.
class PatienceWithMpi {
 public:
  explicit PatienceWithMpi(Deadline deadline)
      : watcher_([this, deadline] {
          std::unique_lock lock(mutex_);
          if (changed_.wait_for(lock, deadline.left(), [this] { return is_done_; })) return;
          log::error(
              "MPI_Init does not return: a rank did not come to hvd.init(), or joins in another way (HOROVOD_MPI and "
              "HOROVOD_BOOTSTRAP must be equal everywhere; HOROVOD_MPI=none does without; HOROVOD_START_TIMEOUT "
              "sets the time)");
          ::_exit(1);
        }) {}
  ~PatienceWithMpi() {
    {
      std::lock_guard lock(mutex_);
      is_done_ = true;
    }
    changed_.notify_all();
    watcher_.join();
  }
  PatienceWithMpi(const PatienceWithMpi&) = delete;
  PatienceWithMpi& operator=(const PatienceWithMpi&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_done_ = false;
  std::thread watcher_;
};

std::atomic<bool> has_given_up{false};

// MPI keeps working on the unfinished call forever: late messages of that call could be mixed up with a later call.
Error not_all_came() {
  has_given_up.store(true);
  mpi::Process::leave_open();
  return {
      ErrorCode::timeout,
      "not all processes of the job called hvd.init() in time, or not all with the same comm (HOROVOD_START_TIMEOUT "
      "sets the time)"};
}

Status check_nothing_is_left_over() {
  if (!has_given_up.load()) return {};
  return Error(ErrorCode::timeout,
               "an earlier hvd.init() of this process timed out, and MPI still waits for the other ranks: end all "
               "processes and start the job again");
}

Result<std::shared_ptr<mpi::Communicator>> copy_of(const void* communicator, const mpi::MpiPlugin& calls,
                                                   Deadline deadline) {
  auto made = calls.duplicate(communicator, deadline);
  if (made) return shared(std::move(*made));
  return made.error().code == ErrorCode::timeout ? not_all_came() : std::move(made.error());
}

// MPI has only a blocking call that makes such a communicator, so a thread makes the call. If MPI may only be called on
// this thread, the call is made here and has no time limit.
Result<std::shared_ptr<mpi::Communicator>> group_of(std::shared_ptr<mpi::Communicator> world, std::vector<int> ranks,
                                                    mpi::ThreadLevel level, Deadline deadline) {
  using Made = Result<std::unique_ptr<mpi::Communicator>>;
  auto make = [world = std::move(world), ranks = std::move(ranks)] {
    constexpr int tag = 0x4856;
    return world->subgroup(ranks, tag);
  };
  auto task = std::make_shared<std::packaged_task<Made()>>(std::move(make));
  auto outcome = task->get_future();
  if (level < mpi::ThreadLevel::serialized) {
    (*task)();
  } else {
    auto thread = posix::start_thread("hvd-mpi", [task] { (*task)(); });
    if (!thread) return std::move(thread.error());
    thread->detach();
  }
  if (outcome.wait_for(deadline.left()) != std::future_status::ready) return not_all_came();
  Made made = outcome.get();
  if (!made) return std::move(made.error());
  return shared(std::move(*made));
}

// The memory that MPI uses until the call is over. If the call is given up, the memory is never freed.
struct Gathering {
  Buffer mine, all;
  std::vector<int> counts, displacements;
  mpi::Request request{};
};

class OverCommunicator final : public Bootstrap {
 public:
  explicit OverCommunicator(std::shared_ptr<mpi::Communicator> communicator) : communicator_(std::move(communicator)) {}

  const char* name() const override { return "mpi"; }
  bool is_over_mpi() const override { return true; }

  bool detected(const Environment& environment) const override {
    return mpi::is_one_running() || reaches_pmix_server(environment);
  }

  // An MPI whose world is only this process is of no use: its launcher does not speak with it.
  bool confirmed(const Environment& environment, const Config& config) override {
    if (!mpi::is_one_running()) return goes_before_pmix(environment, config);
    auto process = mpi::Process::open(environment, config);
    if (!process || !(*process)->is_running()) return false;
    auto world = (*process)->calls().world();
    return world && (*world)->size() > 1;
  }

  Result<Identity> join(const Environment& environment, const Config& config) override {
    auto deadline = start_deadline(config);
    if (communicator_ == nullptr) HVD_RETURN_IF_ERROR(take_world(environment, config, deadline));
    return name_job(deadline);
  }

  Status put(std::string_view key, ConstBytes value) override {
    ByteWriter out(unsent_);
    out.put_string(key);
    out.put_string(to_string(value));
    return {};
  }

  Result<Buffer> get(Rank from, std::string_view key, Deadline) override {
    auto found = values_.find(std::pair(from.value, std::string(key)));
    if (found != values_.end()) return found->second;
    return Error(ErrorCode::invalid_argument, "rank " + std::to_string(from.value) + " put no value \"" +
                                                  std::string(key) + "\" before the last fence");
  }

  Status fence(Deadline deadline) override {
    auto ranks = static_cast<std::size_t>(communicator_->size());
    Buffer length(sizeof(std::uint64_t));
    std::uint64_t mine = unsent_.size();
    std::memcpy(length.data(), &mine, sizeof mine);
    auto lengths = gather(std::move(length), std::vector<int>(ranks, sizeof mine), deadline);
    if (!lengths) return std::move(lengths.error());
    std::vector<int> counts;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::uint64_t count = 0;
      std::memcpy(&count, lengths->data() + rank * sizeof count, sizeof count);
      counts.push_back(static_cast<int>(count));
    }
    auto all = gather(std::exchange(unsent_, {}), counts, deadline);
    if (!all) return std::move(all.error());
    std::size_t begin = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      auto count = static_cast<std::size_t>(counts[rank]);
      HVD_RETURN_IF_ERROR(take(static_cast<int>(rank), ConstBytes(*all).subspan(begin, count)));
      begin += count;
    }
    return {};
  }

  void abort(std::string_view) noexcept override {}  // a process that ends without MPI_Finalize ends the job

 private:
  Status take_world(const Environment& environment, const Config& config, Deadline deadline) {
    HVD_RETURN_IF_ERROR(check_nothing_is_left_over());
    auto process = mpi::Process::open(environment, config);
    if (!process) return std::move(process.error());
    // If this bootstrap was forced by name, or MPI must be started before PMIx is asked, MPI does not run yet and is
    // started here.
    if (!(*process)->is_running()) {
      PatienceWithMpi patience(deadline);
      HVD_RETURN_IF_ERROR((*process)->start(environment, config));
    }
    if (!(*process)->meet_world(deadline)) return not_all_came();
    auto copy = copy_of(nullptr, (*process)->calls(), deadline);
    if (!copy) return std::move(copy.error());
    communicator_ = std::move(*copy);
    return {};
  }

  // Rank 0 chooses the name of the job.
  Result<Identity> name_job(Deadline deadline) {
    static std::atomic<int> joinings{0};
    std::string name =
        "mpi-" + posix::host_name() + "-" + std::to_string(::getpid()) + "-" + std::to_string(joinings.fetch_add(1));
    HVD_RETURN_IF_ERROR(put("job", as_bytes(name)));
    HVD_RETURN_IF_ERROR(fence(deadline));
    auto job = get(Rank{0}, "job", deadline);
    if (!job) return std::move(job.error());
    return Identity{Rank{communicator_->rank()}, communicator_->size(), to_string(*job)};
  }

  Status take(int rank, ConstBytes bytes) {
    ByteReader in(bytes);
    while (in.ok() && !in.at_end()) {
      std::string key(in.get_string());
      ConstBytes value = as_bytes(in.get_string());
      values_[{rank, std::move(key)}].assign(value.begin(), value.end());
    }
    if (in.ok()) return {};
    return Error(ErrorCode::mismatch, "the values of rank " + std::to_string(rank) + " came damaged over MPI");
  }

  Result<Buffer> gather(Buffer mine, std::vector<int> counts, Deadline deadline) {
    auto gathering = std::make_unique<Gathering>();
    gathering->mine = std::move(mine);
    gathering->counts = std::move(counts);
    gathering->displacements.resize(gathering->counts.size());
    std::exclusive_scan(gathering->counts.begin(), gathering->counts.end(), gathering->displacements.begin(), 0);
    gathering->all.resize(static_cast<std::size_t>(gathering->displacements.back()) +
                          static_cast<std::size_t>(gathering->counts.back()));
    CollectiveCall call;
    call.verb = Verb::allgather;
    call.input = gathering->mine.data();
    call.output = gathering->all.data();
    call.counts = gathering->counts;
    call.displacements = gathering->displacements;
    HVD_RETURN_IF_ERROR(communicator_->start(call, gathering->request));
    Naps naps;
    for (std::size_t unused = 0;;) {
      Completion completion = communicator_->test(gathering->request, unused);
      if (completion == Completion::done) return std::move(gathering->all);
      if (completion != Completion::pending) return communicator_->failure();
      if (deadline.passed()) break;
      naps.take();
    }
    (void)gathering.release();
    return not_all_came();
  }

  std::shared_ptr<mpi::Communicator> communicator_;  // null until join() has copied the communicator of the world
  Buffer unsent_;
  std::map<std::pair<int, std::string>, Buffer> values_;
};

std::string list_of(std::span<const int> ranks) {
  std::string text;
  for (int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return "[" + text + "]";
}

Status check_ranks(std::span<const int> ranks, int me, int size) {
  std::vector<int> sorted(ranks.begin(), ranks.end());
  std::sort(sorted.begin(), sorted.end());
  if (sorted.front() < 0 || sorted.back() >= size || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    return Error(ErrorCode::invalid_argument, "init(comm=" + list_of(ranks) + "): expected different ranks of the " +
                                                  std::to_string(size) + " that MPI_COMM_WORLD has");
  if (std::binary_search(sorted.begin(), sorted.end(), me)) return {};
  return Error(ErrorCode::invalid_argument, "init(comm=" + list_of(ranks) + ") was called by rank " +
                                                std::to_string(me) +
                                                " of MPI_COMM_WORLD, which is not in the list: only members call it");
}

}  // namespace

std::shared_ptr<mpi::Communicator> shared(std::unique_ptr<mpi::Communicator> communicator) {
  return {communicator.release(), [](mpi::Communicator* last) {
            if (!mpi::Process::is_left_open()) last->release();
            delete last;
          }};
}

Result<std::shared_ptr<mpi::Communicator>> communicator_of(const Members& members, const Environment& environment,
                                                           const Config& config) {
  HVD_RETURN_IF_ERROR(check_nothing_is_left_over());
  auto process = mpi::Process::open(environment, config);
  if (!process) return std::move(process.error());
  const mpi::MpiPlugin& calls = (*process)->calls();
  if (members.mpi_communicator != nullptr) {
    // The handle comes from the MPI that this plugin belongs to. It means nothing to any other MPI.
    if (members.handle_bytes != calls.handle_bytes)
      return Error(ErrorCode::invalid_argument, "a communicator's handle has " + std::to_string(members.handle_bytes) +
                                                    " bytes, but " + calls.version() + " has handles of " +
                                                    std::to_string(calls.handle_bytes) +
                                                    ": it was made by another MPI than the one in this process");
    if (!(*process)->is_running())
      return Error(ErrorCode::invalid_argument,
                   "a communicator was given, but MPI is not initialised, or was finalised");
    auto deadline = start_deadline(config);
    if (calls.is_world(members.mpi_communicator) && !(*process)->meet_world(deadline)) return not_all_came();
    return copy_of(members.mpi_communicator, calls, deadline);
  }
  // Starting MPI has no deadline: it waits for other processes, whose programs may start MPI at any time.
  if (!(*process)->is_running()) HVD_RETURN_IF_ERROR((*process)->start(environment, config));
  auto deadline = start_deadline(config);
  auto world = calls.world();
  if (!world) return std::move(world.error());
  HVD_RETURN_IF_ERROR(check_ranks(members.ranks, (*world)->rank(), (*world)->size()));
  bool is_everybody = members.ranks.size() == static_cast<std::size_t>((*world)->size());
  if (is_everybody && !(*process)->meet_world(deadline)) return not_all_came();
  return group_of(std::move(*world), {members.ranks.begin(), members.ranks.end()}, calls.thread_level(), deadline);
}

std::unique_ptr<Bootstrap> make_over_world() {
  return std::make_unique<OverCommunicator>(nullptr);
}

Result<Chosen> over_communicator(std::shared_ptr<mpi::Communicator> communicator, const Environment& environment,
                                 const Config& config) {
  auto bootstrap = std::make_unique<OverCommunicator>(std::move(communicator));
  auto identity = bootstrap->join(environment, config);
  if (!identity) return std::move(identity.error());
  return Chosen{std::move(bootstrap), std::move(*identity), "asked for by init(comm=...)"};
}

}  // namespace hvd::bootstrap
