// Moves tensors from GPU to GPU by NCCL. What calls NCCL is in a plugin. Here the ranks of a group tell each other
// whether they can use it: if one cannot, all are told why, and their tensors are staged through host memory.
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "devices/of_rank/devices.hpp"
#include "native/posix/files/settings_files.hpp"
#include "transport/nccl/plugin.hpp"

namespace hvd::transport {
namespace {

using over_nccl::Agreement;
using over_nccl::Candidate;
using over_nccl::Card;
using over_nccl::Plugin;

class NcclConnecting final : public Connecting {
 public:
  NcclConnecting(const Surroundings& surroundings, const Group& group, std::string_view name, Exchange& exchange)
      : surroundings_(surroundings), group_(group), name_(name), exchange_(exchange) {
    Result<std::unique_ptr<Candidate>> applied = apply();
    if (applied) candidate_ = std::move(*applied);
    else without_nccl_.refusal = std::move(applied.error().message);
    cards_.resize(static_cast<std::size_t>(group.size()));
  }

  Progress step() override {
    if (failure_) return Progress::failed;
    if (!has_told_) {
      const Card* mine = candidate_ != nullptr ? candidate_->card() : &without_nccl_;
      if (mine == nullptr) return Progress::pending;
      has_told_ = true;
      if (auto put = exchange_.put(key(), mine->encode()); !put) return fail(put.error());
    }
    for (; heard_ < group_.size(); ++heard_) {
      auto is_there = exchange_.get(group_.rank_at(Seat{heard_}), key(), word_);
      if (!is_there) return fail(is_there.error());
      if (!*is_there) return Progress::pending;
      auto card = Card::decode(word_);
      if (!card) return fail(card.error());
      cards_[static_cast<std::size_t>(heard_)] = std::move(*card);
    }
    agreement_ = over_nccl::agree(*surroundings_.world, group_, cards_);
    if (!agreement_.refusal.empty() && surroundings_.config->nccl == "1")
      return fail({ErrorCode::unsupported,
                   "HOROVOD_NCCL=1, but NCCL cannot be used for '" + name_ + "': " + agreement_.refusal});
    return Progress::done;
  }
  std::unique_ptr<Link> take() override {
    if (agreement_.refusal.empty()) {
      log_news();
      if (agreement_.without_nvls && group_.me == Seat{0})
        log::info("NVLS is off for '" + name_ +
                  "', which is a part of its nodes, so that the NVSwitches have places "
                  "for others (nvlsHostMode; NCCL_NVLS_ENABLE decides if it is set)");
      return candidate_->make_link(agreement_);
    }
    if (group_.me == Seat{0})
      log::warning("NCCL is not used for '" + name_ + "': " + agreement_.refusal +
                   " (HOROVOD_NCCL=0 ends this notice)");
    return nullptr;
  }
  const Error& failure() const override { return *failure_; }

 private:
  Result<std::unique_ptr<Candidate>> apply() {
    devices::Device* device = surroundings_.ask<devices::Devices>()->find(DeviceKind::cuda);
    if (device == nullptr) return Error(ErrorCode::unsupported, "it has no GPU");
    if (device->library() != std::string_view("cuda"))
      return Error(ErrorCode::unsupported, std::string("its device is one of ") + device->library() + ", not of CUDA");
    auto plugin = posix::open_plugin<Plugin>("nccl", posix::environment_with_files());
    if (!plugin) return std::move(plugin.error());
    return (*plugin)->apply(surroundings_, *device, group_, name_);
  }
  void log_news() const {
    static std::atomic<bool> is_told{false};
    if (group_.me != Seat{0} || is_told.exchange(true)) return;
    const Candidate::News news = candidate_->news();
    log::info(news.information);
    if (!news.warning.empty()) log::warning(news.warning);
  }
  std::string key() const { return name_ + " nccl"; }
  Progress fail(Error error) {
    failure_ = std::move(error);
    return Progress::failed;
  }

  const Surroundings surroundings_;
  const Group group_;
  const std::string name_;
  Exchange& exchange_;
  std::unique_ptr<Candidate> candidate_;
  Card without_nccl_;
  std::vector<Card> cards_;
  bool has_told_ = false;
  std::int32_t heard_ = 0;
  Buffer word_;
  Agreement agreement_;
  std::optional<Error> failure_;
};

class Nccl final : public Transport {
 public:
  explicit Nccl(const Surroundings& surroundings) : surroundings_(surroundings) {}

  const char* name() const override { return "nccl"; }

  // Equal on all ranks, because the setting is. Whether it is possible, they find out together.
  bool reaches(const Group& group, DeviceKind kind) const override {
    return kind == DeviceKind::cuda && group.has_me() && group.size() > 1 && surroundings_.config != nullptr &&
           surroundings_.config->nccl != "0" && surroundings_.ask<devices::Devices>() != nullptr;
  }

  Result<std::unique_ptr<Connecting>> connect(const Group& group, std::string_view name, Exchange& exchange) override {
    return std::unique_ptr<Connecting>(std::make_unique<NcclConnecting>(surroundings_, group, name, exchange));
  }

 private:
  const Surroundings surroundings_;
};

}  // namespace

std::unique_ptr<Transport> make_nccl(const Surroundings& surroundings) {
  return std::make_unique<Nccl>(surroundings);
}

}  // namespace hvd::transport
