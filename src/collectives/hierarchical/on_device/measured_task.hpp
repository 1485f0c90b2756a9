#pragma once
// The task of a team that measures its stages. The first batch with a rail begins when that is done; all links are
// there then, and the turnstile keeps the order of what is launched on those of the device.
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/hierarchical/on_device/measurement.hpp"

namespace hvd::collectives::hierarchical {

class MeasuredTask final : public Task {
 public:
  MeasuredTask(std::unique_ptr<Task> task, const Collective& collective, Team& team);
  ~MeasuredTask() override;

  void rescale(double prescale, double postscale) override { task_->rescale(prescale, postscale); }
  void restart(std::span<const Segment> in, std::span<const Segment> out, Sequence sequence) override;
  Progress step() override;
  Event event() const override { return measurement_ ? measurement_->event() : task_->event(); }
  const Error& failure() const override { return failure_ ? *failure_ : task_->failure(); }
  bool has_launched() const override { return !measurement_ && !failure_ && task_->has_launched(); }
  void note_stages(bool wanted) override { task_->note_stages(wanted); }
  std::span<const StageOnDevice> stages() const override {
    return measurement_ || failure_ ? std::span<const StageOnDevice>{} : task_->stages();
  }
  Seat waiting_for() const override { return measurement_ ? measurement_->waiting_for() : task_->waiting_for(); }

 private:
  Progress measure();
  void report() const;

  const std::unique_ptr<Task> task_;
  const Collective collective_;
  Team& team_;
  Team& rail_;
  const bool is_over_host_;
  const std::shared_ptr<Slots> slots_;
  std::optional<Measurement> measurement_;
  std::vector<Segment> in_, out_;  // of the batch that waits for the measurement
  Sequence sequence_;
  std::optional<Error> failure_;
};

}  // namespace hvd::collectives::hierarchical
