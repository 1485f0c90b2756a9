#pragma once
// Tells all ranks an outcome or bytes of rank 0 that belong to a checkpoint. Uses only functions of horovod.h.
#include <cstddef>
#include <string>
#include <vector>

#include "api/horovod.h"
#include "base/bytes.hpp"

namespace hvd::api {

// True on rank 0. A null runtime means that this process works alone; it then counts as rank 0.
bool is_rank_0(hvd_runtime* runtime);

// Gives rank 0's status and message to every rank: returns the status, and sets the message as the reason.
hvd_status share_outcome(hvd_runtime* runtime, hvd_status status);

// Gives rank 0's bytes to every rank.
hvd_status share_bytes(hvd_runtime* runtime, const char* name, Buffer& bytes);

// Returns HVD_MISMATCH on every rank if the ranks do not all pass the same number. `what` is the message.
hvd_status agree_on(hvd_runtime* runtime, std::uint32_t number, const std::string& what);

// Broadcasts from rank 0. Each one starts when its memory is ready; wait() waits for all of them.
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
