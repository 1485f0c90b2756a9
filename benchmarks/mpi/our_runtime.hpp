#pragma once
// The whole library through its C interface, in a program that an MPI launcher has started.
#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/store/local_store.hpp"
#include "horovod.h"
#include "mpi/job.hpp"
#include "mpi/tensors.hpp"

namespace hvd::benchmark {

// The resources that threads have used since they began.
struct Usage {
  double cpu_s = 0;
  double switches = 0;
};
// Returns all threads of this process.
std::set<pid_t> threads_now();
Usage usage_of(const std::set<pid_t>& threads);

class OurRuntime {
 public:
  // Collective. Rank 0 serves the store at which the ranks meet. The others get its address through MPI.
  explicit OurRuntime(Job& job);
  ~OurRuntime();
  OurRuntime(const OurRuntime&) = delete;
  OurRuntime& operator=(const OurRuntime&) = delete;

  hvd_runtime* get() const { return runtime_; }
  Usage usage() const { return usage_of(threads_); }  // the resources that the runtime's own threads have used
  void check(hvd_status status) const {
    if (status != HVD_OK) job_.fail(hvd_last_error());
  }

 private:
  void serve_store();
  void tell_where_the_store_is();

  Job& job_;
  hvd_runtime* runtime_ = nullptr;
  std::unique_ptr<bootstrap::LocalStoreServer> store_;
  posix::FileDescriptor stop_;
  std::thread server_;
  std::set<pid_t> threads_;
};

// An averaging allreduce of each of several tensors.
class OurStep {
 public:
  OurStep(OurRuntime& runtime, const Tensors& tensors, const std::string& name);
  // Calls hvd_start once per tensor, as a framework's hooks do.
  void start_one_by_one();
  // Calls hvd_start once for all tensors.
  void start_together();
  void wait();

 private:
  OurRuntime& runtime_;
  std::vector<hvd_start_arguments> arguments_;
  std::vector<hvd_handle> handles_;
};

}  // namespace hvd::benchmark
