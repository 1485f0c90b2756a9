#pragma once
// The thread ("hvd-nccl") that makes all calls of NCCL for one GPU, one job after the other: neither two communicators
// nor one may be used by two threads. A job is over when what it has to launch was launched. So the order of the jobs
// is the order of the launches, which is the log's on every rank (runtime/lanes/turnstile).
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/result.hpp"
#include "devices/device.hpp"
#include "native/cuda/context.hpp"

namespace hvd::transport::over_nccl {

class Issuer {
 public:
  // Returns the issuer of the device, which all its links share.
  static Result<std::shared_ptr<Issuer>> of(devices::Device& device);
  // Carries out the jobs that are left.
  ~Issuer();
  Issuer(const Issuer&) = delete;
  Issuer& operator=(const Issuer&) = delete;

  // `owner` is what forget() knows the job by.
  void push(const void* owner, std::function<void()> job);
  // Drops the jobs of this owner, and waits until none runs. Afterwards the owner may be destroyed. Returns true if
  // there was none.
  bool forget(const void* owner);

  const cuda::Context& context() const noexcept { return *context_; }

  // For jobs. Lets the stream wait for what was issued last, if that was on another stream: kernels of two
  // communicators must not wait for each other, and links use their buffer again.
  Status follow(const void* owner, Stream stream);
  void has_issued(const void* owner, Stream stream, Event end);

 private:
  struct Job {
    const void* owner;
    std::function<void()> run;
  };
  Issuer(devices::Device& device, std::shared_ptr<const cuda::Context> context)
      : device_(device), context_(std::move(context)) {}
  void run();

  devices::Device& device_;
  const std::shared_ptr<const cuda::Context> context_;
  std::mutex mutex_;
  std::condition_variable news_, is_idle_;
  std::vector<Job> jobs_;  // few
  const void* running_ = nullptr;
  bool is_over_ = false;
  // Of the thread alone.
  const void* last_owner_ = nullptr;
  Stream last_stream_;
  Event last_end_;
  std::thread thread_;
};

}  // namespace hvd::transport::over_nccl
