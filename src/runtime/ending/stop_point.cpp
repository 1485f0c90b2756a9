#include "runtime/ending/stop_point.hpp"

namespace hvd::runtime {

void StopPointOfRank::request(StopCause cause, std::string reason) {
  {
    std::lock_guard lock(mutex_);
    if (!request_) request_ = {cause, std::move(reason)};
  }
  has_news_.store(true, std::memory_order_release);
  wake_();
}

bool StopPointOfRank::acknowledge(const StopPoint& point, std::uint64_t synchronised) {
  if (synchronised <= point.record) return false;
  if (!has_acked_.exchange(true)) {
    has_news_.store(true, std::memory_order_release);
    wake_();
  }
  return true;
}

void StopPointOfRank::take(const StopPointRecord& record, std::uint64_t number) {
  auto point =
      std::make_unique<const StopPoint>(StopPoint{number, record.by, record.cause, std::string(record.reason)});
  point_.store(point.get(), std::memory_order_release);
  owned_point_ = std::move(point);
}

void StopPointOfRank::pass_on_news(Outbox& outbox) {
  std::lock_guard lock(mutex_);
  if (request_ && !std::exchange(has_sent_request_, true))
    outbox.send(StopPointRequest{request_->first, request_->second});
  if (has_acked_.load() && !std::exchange(has_sent_ack_, true)) outbox.send(StopAckRequest{});
}

}  // namespace hvd::runtime
