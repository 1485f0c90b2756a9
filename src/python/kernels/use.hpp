#pragma once
// One call of a framework's kernel: operations that are started together and end together. A framework derives a class
// from Use, which knows its tensors and how to tell that the kernel is done.
//
//  1. submit() never blocks and takes any thread. If a name is in flight or waits, the use waits behind it: frameworks
//     run iterations of a loop at the same time, and the k-th use of a name is the k-th on every rank.
//  2. The memory of results whose size is not known beforehand comes from the framework (allocate).
//  3. end() is called once for each use, whatever happens: when its last operation has ended, on the thread for
//     callbacks of the runtime; or, if it could not be started, on the thread that found that out, which may be the
//     caller of submit(). The uses that waited for its names have been started before.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/horovod.h"

namespace hvd::kernels {

// What an operation does. It is prepared once, and again when it differs from the last use of its name.
struct Description {
  hvd_verb verb = HVD_ALLREDUCE;
  hvd_dtype dtype = HVD_FLOAT32;
  hvd_reduce_op reduce_op = HVD_SUM;
  std::vector<std::int64_t> shape;
  double prescale = 1.0, postscale = 1.0;
  int root_rank = 0;
  std::string group;  // empty: none
  hvd_device device = HVD_HOST;
  int ordinal = 0;  // of the device

  friend bool operator==(const Description&, const Description&) = default;
};

struct Member {
  std::string name;
  Description what;
  const void* input = nullptr;
  void* output = nullptr;            // null: allocate() gives the memory; on a device the runtime keeps the result
  std::vector<std::int64_t> splits;  // alltoall: rows for each rank; empty: equal parts
};

struct Ending {
  hvd_status status = HVD_OK;
  std::string message;  // of the first operation that failed
};

class Use {
 public:
  explicit Use(int set = 0) : process_set(set) {}
  virtual ~Use() = default;
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  // Gives host memory for the result of a member without output. Called on the thread that moves all operations of the
  // rank, so it must not wait. Null: there is none, and the rank leaves the job.
  virtual void* allocate(std::size_t /*member*/, int /*dimensions*/, const std::int64_t* /*shape*/,
                         std::size_t /*bytes*/) {
    return nullptr;
  }
  // A member has ended without an error: what hvd_result_* tell of it can be asked here, and what the runtime keeps can
  // be taken. On a device it is called when all members have ended, and `stream` waits for them.
  virtual void take(std::size_t /*member*/, const hvd_completion& /*completion*/) {}
  // Must not throw. Afterwards the use is destroyed.
  virtual void end(const Ending& ending) = 0;

  const int process_set;
  std::vector<Member> members;  // at least one; all names differ
  void* stream = nullptr;       // the framework's, for tensors in the memory of a device. The results are its to use
                                // from end() on: work that is queued on it then sees them
};

void submit(std::unique_ptr<Use> use);

// How many names the kit remembers, for tests.
std::size_t known_names();

}  // namespace hvd::kernels
