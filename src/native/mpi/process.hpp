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

// The plugin of an ABI without looking for a library: false if there is none beside the core.
bool has_plugin(std::string_view abi, const Environment& environment);
std::span<const char* const> abis();

// Whether people told it which interfaces to use, so that it need not choose for itself.
bool is_told_its_interfaces(const Environment& environment);

// There is one MPI per process, hence one of these; it is never destroyed. From any thread.
class Process {
 public:
  // ErrorCode::unsupported with everything that was tried, if there is no MPI or HOROVOD_MPI=none. Starts nothing.
  static Result<Process*> open(const Environment& environment, const Config& config);

  const MpiPlugin& calls() const { return *calls_; }
  bool is_running() const { return calls_->is_initialized() && !calls_->is_finalized(); }
  // MPI_Init_thread, unless somebody has done it; collective over what the MPI library takes for its world. An MPI that
  // cannot be called from several threads is refused, unless the user said that one thread at a time is enough
  // (HOROVOD_MPI_THREADS_DISABLE). What is initialised here is finalised when the process exits with 0.
  // ErrorCode::unsupported, and nothing has happened, where the launcher does not seem to speak with this MPI and
  // HOROVOD_MPI does not insist.
  Status start(const Environment& environment, const Config& config);
  // Whether the library can only be told by a PMI-1 server who the others are, and there is none.
  bool lacks_pmi_server(const Environment& environment) const;
  // Open MPI 5 ends the process in MPI_Init where PMIx is initialised already ("local rank … Not found", 5.0.11):
  // start() refuses it then. Where PMIx had been finalised before, OpenPMIx 5.0.11 crashes in MPI_Finalize (frees its
  // topology twice).
  bool must_initialize_pmix() const;
  // Open MPI 5 crashes in MPI_Init (mca_pml_ob1_recv_frag_callback_match; open-mpi/ompi#12495) when a rank that has
  // come out of it sends something to one that has not. So before the first message of a job of all processes they meet
  // here, by PMIx; all of them call it, whoever started their MPI. Does nothing with other MPIs, nor the second time,
  // nor for who is alone. False if not all come in time.
  bool meet_world(Deadline deadline);
  bool is_ours() const { return is_ours_; }
  // What was started here is not finalised either: for who tells the launcher himself that the process leaves in order.
  void skip_finalize() noexcept { skips_finalize_ = true; }
  ThreadLevel level() const { return calls_->thread_level(); }
  // Peers are gone, or something of MPI's is still under way: finalising would wait for them for ever. Left undone, so
  // that the launcher ends the job.
  static void leave_open() noexcept;
  static bool is_left_open() noexcept;

 private:
  Status check_launcher(const Environment& environment) const;
  explicit Process(const MpiPlugin* calls) : calls_(calls) {}
  const MpiPlugin* calls_;
  bool is_ours_ = false;
  bool skips_finalize_ = false;
};

// Calls `action` when the program ends MPI, before anything of it is ended: whoever uses MPI stops then. On the thread
// that called MPI_Finalize; done when the action returns. Destroyed, it waits for an action that runs.
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
