#include "bootstrap/selection/selection.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <type_traits>

#include "base/log.hpp"
#include "base/text/number.hpp"
#include "bootstrap/launch/guard.hpp"

namespace hvd::bootstrap {
namespace {

// The best bootstrap comes first. A bootstrap that is not named here comes just before the last one.
constexpr std::string_view preference[] = {"assigned",    "mpi",        "pmix",  "pmi",
                                           "environment", "rendezvous", "slurm", "single"};

std::size_t place_of(std::string_view name) {
  constexpr std::size_t count = std::size(preference);
  for (std::size_t place = 0; place < count; ++place)
    if (preference[place] == name) return place * 2;
  return count * 2 - 3;
}

// Logs every call of another bootstrap with the time that the call took.
class Traced final : public Bootstrap {
  template <typename Call>
  std::invoke_result_t<Call> timed(const std::string& what, Call call) {
    auto begin = Clock::now();
    auto result = call();
    char took[48];
    std::snprintf(took, sizeof took, " in %.3f ms",
                  std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    log::trace("bootstrap " + std::string(name()) + ": " + what + took + (result ? "" : ": " + result.error().message));
    return result;
  }

 public:
  explicit Traced(std::unique_ptr<Bootstrap> inner) : inner_(std::move(inner)) {}

  const char* name() const override { return inner_->name(); }
  bool detected(const Environment& environment) const override { return inner_->detected(environment); }
  bool confirmed(const Environment& environment, const Config& config) override {
    return inner_->confirmed(environment, config);
  }
  Result<Identity> join(const Environment& environment, const Config& config) override {
    return timed("join", [&] { return inner_->join(environment, config); });
  }
  Status put(std::string_view key, ConstBytes value) override {
    return timed("put " + std::string(key) + " (" + std::to_string(value.size()) + " bytes)",
                 [&] { return inner_->put(key, value); });
  }
  Result<Buffer> get(Rank from, std::string_view key, Deadline deadline) override {
    return timed("get " + std::string(key) + " of rank " + std::to_string(from.value),
                 [&] { return inner_->get(from, key, deadline); });
  }
  Status fence(Deadline deadline) override {
    return timed("fence", [&] { return inner_->fence(deadline); });
  }
  std::optional<Result<Cards>> exchange(std::string_view key, const Card& card, Deadline deadline) override {
    std::optional<Result<Cards>> cards;
    log::trace("bootstrap " + std::string(name()) + ": begin the exchange " + std::string(key));
    (void)timed("exchange " + std::string(key), [&]() -> Status {
      cards = inner_->exchange(key, card, deadline);
      if (!cards) return Error(ErrorCode::unsupported, "not done in one step; cards travel by put, fence and get");
      return *cards ? Status() : cards->error();
    });
    return cards;
  }
  bool assigns() const override { return inner_->assigns(); }
  void set_progress(const Progress& progress) override { inner_->set_progress(progress); }
  std::vector<HostNews> take_news() override { return inner_->take_news(); }
  void tidy_up() noexcept override {
    log::trace("bootstrap " + std::string(name()) + ": tidy up");
    inner_->tidy_up();
  }
  void abort(std::string_view reason) noexcept override {
    log::trace("bootstrap " + std::string(name()) + ": abort: " + std::string(reason));
    inner_->abort(reason);
  }

 private:
  std::unique_ptr<Bootstrap> inner_;
};

std::unique_ptr<Bootstrap> make(const Maker& maker) {
  auto bootstrap = maker.make();
  if (!log::enabled(log::Level::trace)) return bootstrap;
  return std::make_unique<Traced>(std::move(bootstrap));
}

Result<Chosen> forced(std::span<const Maker> makers, const Environment& environment, const Config& config) {
  std::string known;
  for (const Maker& maker : makers) {
    known += (known.empty() ? "" : ", ") + std::string(maker.name);
    if (config.bootstrap != maker.name) continue;
    auto bootstrap = make(maker);
    auto identity = bootstrap->join(environment, config);
    if (!identity) {
      identity.error().message = "HOROVOD_BOOTSTRAP=" + config.bootstrap + ": " + identity.error().message;
      return std::move(identity.error());
    }
    // The guard is skipped for a user who asks for `single` by name.
    if (config.bootstrap != "single") HVD_RETURN_IF_ERROR(check_singleton(identity->size, environment, config));
    return Chosen{std::move(bootstrap), std::move(*identity), "forced by HOROVOD_BOOTSTRAP"};
  }
  return Error(ErrorCode::invalid_argument,
               "HOROVOD_BOOTSTRAP=\"" + config.bootstrap + "\" is unknown: expected one of " + known);
}

// Two launchers, one inside the other (horovodrun inside srun), may both have set their variables. If the wrong
// launcher were followed, every process would get the same rank.
Status check_agreement(const std::string& name_of_bootstrap, const Identity& identity, const Environment& environment) {
  for (auto [name, value] :
       {std::pair("HOROVOD_RANK", identity.rank.value), std::pair("HOROVOD_SIZE", identity.size)}) {
    std::string text = environment.get(name).value_or("");
    if (text.empty() || number_in<int>(text) == value) continue;
    return Error(ErrorCode::mismatch, "two launchers contradict each other: by " + name_of_bootstrap +
                                          " this is rank " + std::to_string(identity.rank.value) + " of " +
                                          std::to_string(identity.size) + ", but " + name + "=" + text +
                                          ": set HOROVOD_BOOTSTRAP to \"" + name_of_bootstrap +
                                          "\" or \"environment\" to choose one");
  }
  // A launcher by which ranks cannot meet may have been started by one that serves them (srun torchrun). A world of one
  // is the guard's affair.
  if (auto launch = innermost_launch(environment);
      identity.size > 1 && launch && row_of(launch->launcher).serves == Serves::nothing &&
      (launch->size != identity.size || launch->rank != identity.rank.value))
    return Error(ErrorCode::mismatch, "two launchers contradict each other: by " + name_of_bootstrap +
                                          " this is rank " + std::to_string(identity.rank.value) + " of " +
                                          std::to_string(identity.size) + ", by " + launch->name + " (" +
                                          launch->evidence + ") rank " + std::to_string(launch->rank) + " of " +
                                          std::to_string(launch->size) + ": " + remedy(*launch, environment));
  return {};
}

Error cannot_find_the_others(const std::string& unusable, const Environment& environment) {
  auto launch = innermost_launch(environment);
  std::string advice = launch ? remedy(*launch, environment) : "start the ranks with horovodrun";
  return {ErrorCode::unsupported, "this process was started as one of several, but cannot find the others: " +
                                      unusable + ". What to do: " + advice +
                                      ". If every process is meant to run for itself, set HOROVOD_BOOTSTRAP=single"};
}

}  // namespace

Result<Chosen> choose(std::span<const Maker> makers, const Environment& environment, const Config& config,
                      std::vector<Notice>& notices) {
  if (!config.bootstrap.empty()) return forced(makers, environment, config);
  std::vector<Maker> ordered(makers.begin(), makers.end());
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const Maker& a, const Maker& b) { return place_of(a.name) < place_of(b.name); });
  std::string unusable;  // bootstraps that were detected but cannot be used here
  for (const Maker& maker : ordered) {
    auto bootstrap = make(maker);
    if (!bootstrap->detected(environment) || !bootstrap->confirmed(environment, config)) continue;
    if (std::string_view(maker.name) == "single" && !unusable.empty() && !config.allow_singleton)
      return cannot_find_the_others(unusable, environment);
    auto identity = bootstrap->join(environment, config);
    if (!identity && identity.error().code == ErrorCode::unsupported && std::string_view(maker.name) != "single") {
      unusable += (unusable.empty() ? "" : "; ") + std::string(maker.name) + ": " + identity.error().message;
      continue;
    }
    if (!identity) return std::move(identity.error());
    if (!bootstrap->assigns()) {  // a place that is assigned counts, whatever the variables say, also if it is alone
      HVD_RETURN_IF_ERROR(check_agreement(maker.name, *identity, environment));
      HVD_RETURN_IF_ERROR(check_singleton(identity->size, environment, config));
    }
    if (!unusable.empty())
      notices.push_back("the ranks find each other by " + std::string(maker.name) +
                        ", since another way cannot be used: " + unusable);
    return Chosen{std::move(bootstrap), std::move(*identity), "detected"};
  }
  return Error(ErrorCode::unsupported, unusable.empty() ? "no bootstrap was detected" : unusable);
}

Result<Chosen> choose(const Environment& environment, const Config& config, std::vector<Notice>& notices) {
  return choose(registry(), environment, config, notices);
}

}  // namespace hvd::bootstrap
