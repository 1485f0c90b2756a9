#pragma once
// The stop point of this rank: its request for one, the one that all ranks have agreed on, and whether this rank has
// acknowledged it.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "runtime/agreement/outbox.hpp"
#include "runtime/agreement/schedule.hpp"

namespace hvd::runtime {

// Where all ranks leave their loops (StopPointRecord).
struct StopPoint {
  std::uint64_t record = 0;  // number of it in the log
  Rank by;
  StopCause cause = StopCause::program;
  std::string reason;
};

class StopPointOfRank {
 public:
  // `wake` ends the engine's sleep.
  explicit StopPointOfRank(std::function<void()> wake) : wake_(std::move(wake)) {}

  // ---- any thread
  // Asks all ranks to leave their loops soon. The first request of any rank counts.
  void request(StopCause cause, std::string reason);
  // Null until it is agreed on; valid as long as this object.
  const StopPoint* get() const { return point_.load(std::memory_order_acquire); }
  // Returns true if a thread that has waited for everything up to record number `synchronised` (synchronised.hpp) must
  // leave its loop. The first time, the leader gets this rank's acknowledgement of the stop point.
  bool acknowledge(const StopPoint& point, std::uint64_t synchronised);

  // ---- the engine's thread
  // `number` is that of the record in the log.
  void take(const StopPointRecord& record, std::uint64_t number);
  // Sends the leader this rank's request and its acknowledgement of the stop point, each once. Other threads only store
  // these facts here, because only the engine's thread may send.
  void pass_on(Outbox& outbox) {
    if (has_news_.load(std::memory_order_relaxed) && has_news_.exchange(false)) pass_on_news(outbox);
  }

 private:
  void pass_on_news(Outbox& outbox);

  std::function<void()> wake_;
  std::mutex mutex_;  // guards the request
  std::optional<std::pair<StopCause, std::string>> request_;
  std::atomic<bool> has_news_{false}, has_acked_{false};
  std::atomic<const StopPoint*> point_{nullptr};

  // Only the engine's thread uses these:
  std::unique_ptr<const StopPoint> owned_point_;
  bool has_sent_request_ = false, has_sent_ack_ = false;
};

}  // namespace hvd::runtime
