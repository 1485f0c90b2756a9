#include "collectives/hierarchical/on_device/measured_task.hpp"

#include <cstdio>
#include <string>
#include <utility>

#include "base/log.hpp"

namespace hvd::collectives::hierarchical {

MeasuredTask::MeasuredTask(std::unique_ptr<Task> task, const Collective& collective, Team& team)
    : task_(std::move(task)),
      collective_(collective),
      team_(team),
      rail_(rail_of(collective, team)),
      is_over_host_(rail_.device == nullptr),
      slots_(Slots::of(team)) {}

MeasuredTask::~MeasuredTask() {
  if (!measurement_) return;
  if (const Event awaited = measurement_->event(); awaited.token != 0)
    (void)team_.device->query(awaited, &devices::nobody());
  slots_->finish();
}

void MeasuredTask::restart(std::span<const Segment> in, std::span<const Segment> out, Sequence sequence) {
  std::int64_t count = 0;
  for (const Segment& segment : in) count += segment.view.count;
  if (slots_->costs(is_over_host_) || slots_->failure() || count == 0) return task_->restart(in, out, sequence);
  in_.assign(in.begin(), in.end());
  out_.assign(out.begin(), out.end());
  sequence_ = sequence;
  if (auto reserved = slots_->reserve(most_share_bytes, is_over_host_); !reserved) {
    failure_ = Error(reserved.error().code, "rank " + std::to_string(team_.group.rank_at(team_.group.me).value) +
                                                " cannot carry out " + name_of(collective_.verb) +
                                                " in stages on its device: " + reserved.error().message);
    return;
  }
  measurement_.emplace(team_, rail_, *slots_, sequence);
}

Progress MeasuredTask::step() {
  if (failure_) return Progress::failed;
  if (measurement_)
    if (const Progress progress = measure(); progress != Progress::done) return progress;
  return task_->step();
}

Progress MeasuredTask::measure() {
  const Progress progress = measurement_->step();
  if (progress == Progress::failed) failure_ = measurement_->failure();
  if (progress != Progress::done) return progress;
  slots_->costs(is_over_host_) = measurement_->costs();
  if (team_.group.me == Seat{0}) report();
  measurement_.reset();
  task_->restart(in_, out_, Sequence{sequence_.value + Measurement::places});
  return progress;
}

void MeasuredTask::report() const {
  const StageCosts& costs = measurement_->costs();
  std::string text = "stages of reductions on devices, measured in ";
  char number[64];
  std::snprintf(number, sizeof number, "%.1f ms", measurement_->seconds() * 1e3);
  text += number;
  const auto add = [&](const char* name, const MessageCost& cost) {
    std::snprintf(number, sizeof number, "; %s %.1f us and %.2f us/MiB", name, cost.latency_s * 1e6,
                  cost.seconds_per_byte * 1e6 * (1 << 20));
    text += number;
  };
  add("packing", costs.pack);
  if (team_.rails > 1) add("the node", costs.node);
  if (is_over_host_) add("to the host", costs.out);
  add("the rail", costs.rail);
  if (is_over_host_) add("back", costs.back);
  text += "; shares of chunks";
  for (std::int64_t megabytes : {4, 64, 256}) {
    const auto element = static_cast<std::int64_t>(size_of(collective_.dtype));
    const std::int64_t share = best_share(collective_, team_, (megabytes << 20) / element, &costs) * element;
    text += (megabytes == 4 ? " of " : ", of ") + std::to_string(megabytes) + " MiB: " + std::to_string(share >> 10) +
            " KiB";
  }
  log::info(text + " (HOROVOD_DETERMINISTIC=1: by assumed costs)");
}

}  // namespace hvd::collectives::hierarchical
