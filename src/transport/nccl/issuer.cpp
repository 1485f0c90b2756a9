#include "transport/nccl/issuer.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/settings/environment.hpp"
#include "native/posix/files/settings_files.hpp"
#include "native/posix/processes/thread.hpp"

namespace hvd::transport::over_nccl {

Result<std::shared_ptr<Issuer>> Issuer::of(devices::Device& device) {
  static std::mutex mutex;
  static std::map<const devices::Device*, std::weak_ptr<Issuer>> issuers;
  std::lock_guard lock(mutex);
  auto& place = issuers[&device];
  if (auto issuer = place.lock()) return issuer;
  auto driver = cuda::open_driver(posix::environment_with_files());
  if (!driver) return std::move(driver.error());
  auto context = cuda::Context::open(**driver, device.ordinal());
  if (!context) return std::move(context.error());
  std::shared_ptr<Issuer> issuer(new Issuer(device, std::move(*context)));
  auto thread = posix::start_thread("hvd-nccl", [raw = issuer.get()] { raw->run(); });
  if (!thread) return std::move(thread.error());
  issuer->thread_ = std::move(*thread);
  place = issuer;
  return issuer;
}

Issuer::~Issuer() {
  {
    std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  news_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Issuer::push(const void* owner, std::function<void()> job) {
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back({owner, std::move(job)});
  }
  news_.notify_one();
}

bool Issuer::forget(const void* owner) {
  std::unique_lock lock(mutex_);
  const bool had_none =
      std::erase_if(jobs_, [owner](const Job& job) { return job.owner == owner; }) == 0 && running_ != owner;
  is_idle_.wait(lock, [&] { return running_ != owner; });
  return had_none;
}

void Issuer::run() {
  const cuda::Context::Use use(*context_);
  std::unique_lock lock(mutex_);
  for (;;) {
    news_.wait(lock, [this] { return is_over_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.erase(jobs_.begin());
    running_ = job.owner;
    lock.unlock();
    job.run();
    job.run = nullptr;
    lock.lock();
    running_ = nullptr;
    is_idle_.notify_all();
  }
}

Status Issuer::follow(const void* owner, Stream stream) {
  if (owner == last_owner_ && stream == last_stream_) return {};
  return device_.wait(stream, last_end_);
}

void Issuer::has_issued(const void* owner, Stream stream, Event end) {
  last_owner_ = owner;
  last_stream_ = stream;
  last_end_ = end;
}

}  // namespace hvd::transport::over_nccl
