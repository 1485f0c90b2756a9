#pragma once
// What the ranks tell each other about a checkpoint, over the public functions: an outcome of rank 0, bytes of rank 0.
#include <cstddef>
#include <string>
#include <vector>

#include "api/horovod.h"
#include "base/bytes.hpp"

namespace hvd::api {

// Null stands for this process alone.
bool is_rank_0(hvd_runtime* runtime);

// Rank 0's status and message, on every rank: the status is returned, and the message set as the reason.
hvd_status share_outcome(hvd_runtime* runtime, hvd_status status);

// Rank 0's bytes, on every rank.
hvd_status share_bytes(hvd_runtime* runtime, const char* name, Buffer& bytes);

// HVD_MISMATCH on every rank if not all have the same number; `what` is for the message.
hvd_status agree_on(hvd_runtime* runtime, std::uint32_t number, const std::string& what);

// Broadcasts from rank 0 that are started as their memory is ready, and waited for together.
class Broadcasts {
 public:
  explicit Broadcasts(hvd_runtime* runtime) : runtime_(runtime) {}
  ~Broadcasts();
  Broadcasts(const Broadcasts&) = delete;
  Broadcasts& operator=(const Broadcasts&) = delete;
  hvd_status start(const std::string& name, void* data, std::size_t bytes);
  hvd_status wait();

 private:
  hvd_runtime* runtime_;
  std::vector<hvd_handle> handles_;
};

}  // namespace hvd::api
