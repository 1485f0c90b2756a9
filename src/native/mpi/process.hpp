#pragma once
// The MPI of this process: the library that it has loaded already, or the first that can be loaded, and the plugin for
// that library's ABI. Needs no header of MPI and is part of the core.
#include <functional>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/deadline.hpp"
#include "base/environment.hpp"
#include "base/result.hpp"
#include "native/mpi/plugin.hpp"

namespace hvd::mpi {

// An MPI library that is mapped into the process.
struct Mapped {
  enum class State { loaded, running, finalised };
  std::string path;  // empty: part of the program itself
  const char* abi;   // "mpich", "openmpi", "abi"
  State state;
};
std::vector<Mapped> mapped_libraries();
bool is_one_running();

// Whether the plugin of an ABI is there, beside the core; looks for no library.
bool has_plugin(std::string_view abi, const Environment& environment);
std::span<const char* const> abis();

// Whether a user told it which interfaces to use, so that it need not choose.
bool is_told_its_interfaces(const Environment& environment);

// There is one MPI per process, hence one of these; it is never destroyed. From any thread.
class Process {
 public:
  // ErrorCode::unsupported with everything that was tried, if there is no MPI or HOROVOD_MPI=none. Starts nothing.
  static Result<Process*> open(const Environment& environment, const Config& config);

  const MpiPlugin& calls() const { return *calls_; }
  bool is_running() const { return calls_->is_initialized() && !calls_->is_finalized(); }
  // Calls MPI_Init_thread unless that has been done; collective over what the MPI library takes for its world. An MPI
  // that cannot be called from several threads is refused, unless the user said that one thread at a time is enough
  // (HOROVOD_MPI_THREADS_DISABLE). An MPI that is initialised here is finalised when the process exits with 0.
  // ErrorCode::unsupported, and nothing has happened, if the launcher does not seem to speak with this MPI and
  // HOROVOD_MPI does not insist.
  Status start(const Environment& environment, const Config& config);
  // Whether only a PMI-1 server can tell the library who the others are, and there is none.
  bool lacks_pmi_server(const Environment& environment) const;
  // If PMIx is initialised already, Open MPI 5 ends the process in MPI_Init ("local rank … Not found", 5.0.11): start()
  // refuses it then. If PMIx was finalised before, OpenPMIx 5.0.11 crashes in MPI_Finalize (it frees its topology
  // twice).
  bool must_initialize_pmix() const;
  // Open MPI 5 crashes in MPI_Init (mca_pml_ob1_recv_frag_callback_match; open-mpi/ompi#12495) if a rank that has left
  // MPI_Init sends something to a rank that has not. So before the first message of a job all processes meet here, over
  // PMIx; all of them call it, whoever started their MPI. It does nothing with other MPIs, the second time, or in a
  // world of one. False if not all come in time.
  bool meet_world(Deadline deadline);
  bool is_ours() const { return is_ours_; }
  // From now on MPI is not finalised here, even if it was started here: the caller tells the launcher itself that the
  // process leaves in order.
  void skip_finalize() noexcept { skips_finalize_ = true; }
  ThreadLevel level() const { return calls_->thread_level(); }
  // Peers are lost, or MPI has something under way: MPI_Finalize would wait for ever. It is not called, so the launcher
  // ends the job.
  static void leave_open() noexcept;
  static bool is_left_open() noexcept;

 private:
  Status check_launcher(const Environment& environment) const;
  explicit Process(const MpiPlugin* calls) : calls_(calls) {}
  const MpiPlugin* calls_;
  bool is_ours_ = false;
  bool skips_finalize_ = false;
};

// Calls `action` when the program ends MPI, before anything of it is ended: all users of MPI must stop then. On the
// thread that called MPI_Finalize, which goes on when the action returns. The destructor waits for an action that runs.
class FinalizeWatch {
 public:
  FinalizeWatch(const MpiPlugin& calls, std::function<void()> action);
  ~FinalizeWatch();
  FinalizeWatch(const FinalizeWatch&) = delete;
  FinalizeWatch& operator=(const FinalizeWatch&) = delete;

 private:
  std::function<void()> action_;
};

}  // namespace hvd::mpi
