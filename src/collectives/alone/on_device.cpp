#include "collectives/alone/on_device.hpp"

#include <optional>

namespace hvd::collectives::alone {

namespace {

class OnDevice final : public Task {
 public:
  OnDevice(const Collective& collective, Team& team)
      : verb_(collective.verb),
        stream_(collective.stream),
        device_(*team.device),
        reduction_{collective.dtype, ReduceOp::sum, {collective.prescale, collective.postscale}} {}

  void rescale(double prescale, double postscale) override { reduction_.scale = {prescale, postscale}; }

  void restart(std::span<const Segment> in, std::span<const Segment> out, Sequence) override {
    in_.assign(in, reduction_.dtype);
    out_.assign(out, reduction_.dtype);
    end_.reset();
  }

  Progress step() override {
    if (failure_) return Progress::failed;
    if (out_.count() == 0) return Progress::done;
    if (!end_) {
      move();
      auto end = device_.record(stream_);
      if (!end && !failure_) failure_ = end.error();
      if (failure_) return Progress::failed;
      end_ = *end;
    }
    return Progress::issued;
  }
  Event event() const override { return end_.value_or(Event{}); }
  const Error& failure() const override { return *failure_; }

 private:
  // Each list is treated as one array. The segments of the two lists may have different borders.
  void move() {
    std::int64_t begin = 0;
    out_.visit(0, out_.count(), [&](std::byte* to, std::int64_t count) {
      in_.visit(begin, count, [&](const std::byte* from, std::int64_t part) {
        if (from != nullptr && to != nullptr) move_piece(to, from, part);
        if (to != nullptr) to += static_cast<std::size_t>(part) * size_of(reduction_.dtype);
      });
      begin += count;
    });
  }
  void move_piece(std::byte* to, const std::byte* from, std::int64_t count) {
    if (failure_) return;
    const bool is_scaled = reduces(verb_) && (reduction_.scale.pre != 1.0 || reduction_.scale.post != 1.0);
    if (!is_scaled && to == from) return;
    const void* source = from;
    void* destination = to;
    auto moved = is_scaled
                     ? device_.reduce(stream_, {&source, 1}, {&destination, 1}, count, reduction_)
                     : device_.copy(stream_, to, from, static_cast<std::size_t>(count) * size_of(reduction_.dtype));
    if (!moved) failure_ = moved.error();
  }

  const Verb verb_;
  const Stream stream_;
  devices::Device& device_;
  devices::Reduction reduction_;
  SegmentArray in_, out_;
  std::optional<Event> end_;
  std::optional<Error> failure_;
};

}  // namespace

std::unique_ptr<Task> plan_on_device(const Collective& collective, Team& team) {
  return std::make_unique<OnDevice>(collective, team);
}

}  // namespace hvd::collectives::alone
