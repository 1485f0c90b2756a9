#include "transport/nccl/communicator.hpp"

#include <thread>
#include <utility>

namespace hvd::transport::over_nccl {

namespace {

// Launches take some ten microseconds, and the start seconds.
class Looks {
 public:
  void pause() {
    if (++count_ < most_quick_looks) std::this_thread::yield();
    else naps_.take();
  }

 private:
  static constexpr int most_quick_looks = 200;
  int count_ = 0;
  Naps naps_;
};

}  // namespace

Status Communicator::check(nccl::Code code, const char* what) const {
  if (code == nccl::Code::success || code == nccl::Code::in_progress) return {};
  return nccl::error_of(library_, code, handle_, std::string(what) + " over '" + name_ + "' has failed");
}

Status Communicator::make(std::span<nccl::UniqueId> ids, int rank, int size, bool without_nvls, Deadline deadline) {
  nccl::CommunicatorConfig config;
  config.name = name_.c_str();
  if (without_nvls) config.do_without_nvls();
  const nccl::Code begun =
      ids.size() > 1 ? library_.init_scalable(&handle_, size, rank, static_cast<int>(ids.size()), ids.data(), &config)
                     : library_.init(&handle_, size, ids.front(), rank, &config);
  HVD_RETURN_IF_ERROR(check(begun, "the start"));
  return finish("the start", deadline);
}

Status Communicator::finish(const char* what, Deadline deadline) {
  for (Looks looks;; looks.pause()) {
    nccl::Code state = nccl::Code::success;
    HVD_RETURN_IF_ERROR(check(library_.async_error(handle_, &state), what));
    if (state == nccl::Code::success) return {};
    HVD_RETURN_IF_ERROR(check(state, what));
    if (is_stopped()) return stopped();
    if (deadline.passed())
      return Error(ErrorCode::timeout, std::string(what) + " of '" + name_ +
                                           "' has not ended in time: NCCL_DEBUG=INFO on all ranks shows where it "
                                           "waits; HOROVOD_START_TIMEOUT sets the time");
  }
}

void Communicator::end(bool is_in_order) {
  stop();
  const nccl::CommunicatorHandle handle = std::exchange(handle_, nullptr);
  if (handle == nullptr) return;
  if (is_in_order) {
    constexpr auto patience = std::chrono::seconds(5);
    const Deadline deadline = Deadline::after(patience);
    nccl::Code state = library_.finalize(handle);
    for (Looks looks; state == nccl::Code::in_progress && !deadline.passed(); looks.pause())
      if (library_.async_error(handle, &state) != nccl::Code::success) state = nccl::Code::internal_error;
    if (state == nccl::Code::success) {
      static_cast<void>(library_.destroy(handle));
      return;
    }
  }
  static_cast<void>(library_.abort(handle));
}

}  // namespace hvd::transport::over_nccl
