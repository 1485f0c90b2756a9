#include "runtime/observers/timeline_switch.hpp"

#include <utility>

#include "base/log.hpp"

namespace hvd::runtime {

namespace {

constexpr const char* later = "DYNAMIC";

}  // namespace

void TimelineSwitch::start_as_configured() {
  if (config_.timeline.empty() || config_.timeline == later) return;
  std::lock_guard lock(mutex_);
  if (auto status = open(config_.timeline, config_.timeline_mark_cycles); !status)
    log::warning(status.error().message + " (HOROVOD_TIMELINE); no timeline is written, the job goes on");
}

Status TimelineSwitch::start(const std::string& path, bool marks_cycles) {
  if (config_.timeline.empty())
    return Error(
        ErrorCode::invalid_argument,
        "a timeline can be started only where HOROVOD_TIMELINE was set at hvd.init(): to a file, or to DYNAMIC");
  if (path.empty())
    return Error(ErrorCode::invalid_argument, "the timeline needs the name of a file; this one is empty");
  std::lock_guard lock(mutex_);
  if (timeline_ && path == path_) return {};
  close();
  return open(path, marks_cycles);
}

void TimelineSwitch::stop() {
  std::lock_guard lock(mutex_);
  close();
}

Status TimelineSwitch::open(const std::string& path, bool marks_cycles) {
  bool is_first = world_.rank == Rank{0};
  if (!is_first && !config_.timeline_all_ranks) return {};
  Timeline::Settings settings;
  settings.path = is_first ? path : path + "." + std::to_string(world_.rank.value);
  settings.header.rank = world_.rank.value;
  settings.header.size = world_.size();
  settings.header.host = world_.me().host;
  settings.header.node = world_.me().node;
  settings.header.job = world_.job;
  settings.marks_batches = marks_cycles;
  auto timeline = Timeline::open(std::move(settings));
  if (!timeline) return Error(ErrorCode::invalid_argument, timeline.error().message + "; name a file that can be made");
  timeline_ = std::move(*timeline);
  path_ = path;
  observers_.add(*timeline_);
  return {};
}

void TimelineSwitch::close() {
  if (!timeline_) return;
  observers_.remove(*timeline_);
  timeline_.reset();
}

}  // namespace hvd::runtime
