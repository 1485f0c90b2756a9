#pragma once
// A communicator of NCCL. Its calls never wait: what is still under way after them is waited for by finish(), which an
// abort ends. All functions but stop() and end() are for the issuer's thread.
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/deadline.hpp"
#include "native/nccl/library.hpp"

namespace hvd::transport::over_nccl {

class Communicator {
 public:
  Communicator(const nccl::Library& library, std::string name) : library_(library), name_(std::move(name)) {}
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Collective. Returns when the communicator is there. Several ids need Library::init_scalable.
  Status make(std::span<nccl::UniqueId> ids, int rank, int size, bool without_nvls, Deadline deadline);
  bool is_there() const noexcept { return handle_ != nullptr; }

  // Makes the calls of one launch, as a group, and returns when they have launched all they have to.
  template <typename Calls>
  Status launch(const char* what, Calls calls, Deadline deadline = Deadline::never()) {
    if (is_stopped()) return stopped();
    HVD_RETURN_IF_ERROR(check(library_.group_start(), what));
    Status called = calls();
    const Status ended = check(library_.group_end(), what);
    if (!called) return called;
    HVD_RETURN_IF_ERROR(ended);
    return finish(what, deadline);
  }
  Status check(nccl::Code code, const char* what) const;
  const nccl::Library& library() const noexcept { return library_; }
  nccl::CommunicatorHandle handle() const noexcept { return handle_; }
  const std::string& name() const noexcept { return name_; }

  // From now on nothing waits for NCCL, and launches fail. Any thread.
  void stop() noexcept { is_stopped_.store(true, std::memory_order_release); }
  bool is_stopped() const noexcept { return is_stopped_.load(std::memory_order_acquire); }
  Error stopped() const { return Error(ErrorCode::shut_down, "the communicator '" + name_ + "' was given up"); }
  // Gives the communicator back, once. In order, if all its ranks do the same and nothing of it is under way on the
  // device; otherwise what is under way ends, on all ranks that do this. The issuer's thread must not be in a call. May
  // hang in NCCL.
  void end(bool is_in_order);

 private:
  // Returns when what was called has happened.
  Status finish(const char* what, Deadline deadline);

  const nccl::Library& library_;
  const std::string name_;
  nccl::CommunicatorHandle handle_ = nullptr;
  std::atomic<bool> is_stopped_{false};
};

}  // namespace hvd::transport::over_nccl
