#pragma once
// The MPI of this process: the library that the process has loaded already, or the first one that can be loaded, and
// the plugin for the ABI of that library. This file needs no header of MPI and is part of the core.
#include <functional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/result.hpp"
#include "base/settings/config.hpp"
#include "base/settings/environment.hpp"
#include "native/mpi/plugin.hpp"

namespace hvd::mpi {

// An MPI library that is mapped into the process.
struct Mapped {
  enum class State { loaded, running, finalised };
  std::string path;  // path of the library; empty: MPI is part of the program itself
  const char* abi;   // name of the ABI: "mpich", "openmpi", "abi"
  State state;
};
std::vector<Mapped> mapped_libraries();
bool is_one_running();

// True if the plugin of an ABI is there, beside the core. Looks for no MPI library.
bool has_plugin(std::string_view abi, const Environment& environment);
std::span<const char* const> abis();

// True if the user told MPI which interfaces to use, so that MPI need not choose.
bool is_told_its_interfaces(const Environment& environment);

// A process has one MPI and therefore one such object, which is never destroyed. It may be used on any thread.
class Process {
 public:
  // Starts nothing. If there is no MPI, or HOROVOD_MPI=none, fails with ErrorCode::unsupported and a list of all that
  // was tried.
  static Result<Process*> open(const Environment& environment, const Config& config);

  const MpiPlugin& calls() const { return *calls_; }
  bool is_running() const { return calls_->is_initialized() && !calls_->is_finalized(); }
  // Calls MPI_Init_thread unless that was done before. Collective over the processes that the MPI library takes for its
  // world. An MPI that cannot be called from several threads is refused, unless the user said that one thread at a time
  // is enough (HOROVOD_MPI_THREADS_DISABLE). An MPI that is initialised here is finalised when the process exits with
  // 0. If the launcher does not seem to speak with this MPI and HOROVOD_MPI does not insist, the call does nothing and
  // fails with ErrorCode::unsupported.
  Status start(const Environment& environment, const Config& config);
  // True if the library can find the other processes only through a PMI-1 server, and there is none.
  bool lacks_pmi_server(const Environment& environment) const;
  // True for an MPI that must be started before PMIx. If PMIx is initialised already, Open MPI 5 ends the process in
  // MPI_Init ("local rank … Not found", 5.0.11); start() fails in this case. If PMIx was finalised before, OpenPMIx
  // 5.0.11 crashes in MPI_Finalize (it frees its topology twice).
  bool must_initialize_pmix() const;
  // Open MPI 5 crashes in MPI_Init (mca_pml_ob1_recv_frag_callback_match; open-mpi/ompi#12495) if a rank that has left
  // MPI_Init sends something to a rank that has not. Therefore all processes meet here, over PMIx, before the first
  // message of a job. All processes call this, also those whose program started MPI. The call does nothing with another
  // MPI, at the second call, or in a world of one process. False if not all come in time.
  bool meet_world(Deadline deadline);
  bool is_ours() const { return is_ours_; }
  // From now on this object does not finalise MPI, even if it has started MPI: the caller itself tells the launcher
  // that the process leaves in order.
  void skip_finalize() noexcept { skips_finalize_ = true; }
  ThreadLevel level() const { return calls_->thread_level(); }
  // Call this if peers are lost, or if MPI has something under way. MPI_Finalize would wait forever, so it is not
  // called; the launcher then ends the job.
  static void leave_open() noexcept;
  static bool is_left_open() noexcept;

 private:
  Status check_launcher(const Environment& environment) const;
  explicit Process(const MpiPlugin* calls) : calls_(calls) {}
  const MpiPlugin* calls_;
  bool is_ours_ = false;
  bool skips_finalize_ = false;
};

// Calls `action` when the program ends MPI, before MPI has ended anything. All users of MPI must stop then. The action
// runs on the thread that called MPI_Finalize, and MPI_Finalize continues when the action returns. The destructor waits
// for an action that is running.
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
