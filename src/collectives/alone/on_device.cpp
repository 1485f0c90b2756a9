#include "collectives/alone/on_device.hpp"

#include <optional>
#include <vector>

namespace hvd::collectives::alone {

namespace {

class OnDevice final : public Task {
 public:
  OnDevice(const Collective& collective, Team& team)
      : verb_(collective.verb),
        stream_(collective.stream),
        device_(*team.device),
        dtype_(collective.dtype),
        prescale_(collective.prescale),
        postscale_(collective.postscale) {}

  void rescale(double prescale, double postscale) override {
    prescale_ = prescale;
    postscale_ = postscale;
  }

  void restart(std::span<const Segment> in, std::span<const Segment> out, Sequence) override {
    in_.assign(in, dtype_);
    out_.assign(out, dtype_);
    end_.reset();
  }

  Progress step() override {
    if (failure_) return Progress::failed;
    if (out_.count() == 0) return Progress::done;
    if (!end_) {
      copy();
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
  void copy() {
    const bool scales = reduces(verb_);
    const double pre = scales ? prescale_ : 1.0, post = scales ? postscale_ : 1.0;
    const double first = pre != 1.0 ? pre : post;
    moves_.clear();
    std::int64_t begin = 0;
    out_.visit(0, out_.count(), [&](std::byte* to, std::int64_t count) {
      if (to != nullptr)
        in_.visit(begin, count, [&](const std::byte* from, std::int64_t part) {
          if (first != 1.0 || from != to) moves_.push_back({from, to, part});
          to += static_cast<std::size_t>(part) * size_of(dtype_);
        });
      begin += count;
    });
    move(first);
    if (pre == 1.0 || post == 1.0) return;
    // Each input is rounded to its type after the first factor, so the second one needs a move of its own.
    for (devices::Move& again : moves_) again.from = again.to;
    move(post);
  }
  void move(double scale) {
    if (failure_ || moves_.empty()) return;
    if (auto moved = device_.move(stream_, moves_, {dtype_, dtype_, scale}); !moved) failure_ = moved.error();
  }

  const Verb verb_;
  const Stream stream_;
  devices::Device& device_;
  const DataType dtype_;
  double prescale_, postscale_;
  SegmentArray in_, out_;
  std::vector<devices::Move> moves_;
  std::optional<Event> end_;
  std::optional<Error> failure_;
};

}  // namespace

std::unique_ptr<Task> plan_on_device(const Collective& collective, Team& team) {
  return std::make_unique<OnDevice>(collective, team);
}

}  // namespace hvd::collectives::alone
