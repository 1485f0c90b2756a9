// A team of one: nothing to communicate, but scales apply and results appear where they are expected.
#include <cstring>
#include <optional>

#include "collectives/algorithm.hpp"
#include "devices/host_kernels.hpp"

namespace hvd::collectives {

namespace {

class AloneTask final : public Task {
 public:
  explicit AloneTask(const Collective& collective)
      : scales_(collective.prescale != 1.0 || collective.postscale != 1.0),
        scale_{collective.prescale, collective.postscale},
        kernel_(devices::reduce_kernel(collective.dtype, collective.op)) {}

  // All of it happens here: there is nobody to wait for.
  void restart(std::span<const Segment> in, std::span<const Segment> out, Sequence) override {
    for (std::size_t i = 0; i < out.size(); ++i) {
      void* to = out[i].view.data;
      const void* from = in[i].view.data;
      std::size_t bytes = out[i].view.bytes();
      if (bytes == 0) continue;
      if (from == nullptr) std::memset(to, 0, bytes);
      else if (scales_) kernel_(&from, 1, &to, 1, out[i].view.count, scale_);
      else if (from != to) std::memcpy(to, from, bytes);
    }
  }
  Progress step() override { return Progress::done; }
  const Error& failure() const override { return *failure_; }

 private:
  bool scales_;
  devices::Scale scale_;
  devices::ReduceKernel kernel_;
  std::optional<Error> failure_;
};

class Alone final : public Algorithm {
 public:
  const char* name() const override { return "alone"; }
  Cost cost(const Collective&, const Team& team) const override {
    return team.size() == 1 ? Cost{0, true} : Cost::impossible();
  }
  std::unique_ptr<Task> plan(const Collective& collective, Team&) const override {
    return std::make_unique<AloneTask>(collective);
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_alone() {
  return std::make_unique<Alone>();
}

}  // namespace hvd::collectives
