// libhorovod_bridge.so is the bridge for programs that start MPI before the runtime, or without the runtime. A library
// that is preloaded into these programs opens it (preload.c).
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "bootstrap/launch/launch.hpp"
#include "bootstrap/launch/owner.hpp"
#include "bootstrap/pmi_bridge/bridge.hpp"
#include "bootstrap/registry.hpp"
#include "bootstrap/store/local_store.hpp"
#include "bootstrap/store/tcp_client.hpp"
#include "bootstrap/store/verbs.hpp"
#include "native/posix/files/settings_files.hpp"

namespace hvd::bootstrap {
namespace {

// A bootstrap over horovodrun's store that is connected only during a fence or an exchange. The store has one seat for
// every rank, and the runtime will want that seat. At the fence the bridge fetches what all ranks have put. All ranks
// put values under the same names.
class ByVisits final : public Bootstrap {
 public:
  const char* name() const override { return "visits"; }
  bool detected(const Environment& environment) const override {
    return environment.has(local_store::address_variable) || environment.has("HOROVOD_GLOO_RENDEZVOUS_ADDR");
  }
  Result<Identity> join(const Environment& environment, const Config& config) override {
    environment_ = environment;
    auto rank = environment.number("HOROVOD_RANK"), size = environment.number("HOROVOD_SIZE");
    if (!rank || !size || *rank >= *size)
      return Error(
          ErrorCode::invalid_argument,
          "expected a rank and a larger size, found HOROVOD_RANK=" + environment.get("HOROVOD_RANK").value_or("") +
              " and HOROVOD_SIZE=" + environment.get("HOROVOD_SIZE").value_or(""));
    identity_ = Identity{Rank{*rank}, *size, ""};
    Deadline deadline = start_deadline(config);
    auto store = enter(deadline);
    if (!store) return std::move(store.error());
    identity_.job = (*store)->job();
    HVD_RETURN_IF_ERROR((*store)->leave(deadline));
    return identity_;
  }
  Status put(std::string_view key, ConstBytes value) override {
    unsent_.emplace_back(key, Buffer(value.begin(), value.end()));
    return {};
  }
  Status fence(Deadline deadline) override {
    auto sent = std::exchange(unsent_, {});
    std::string names;
    Card card;
    for (auto& [name, value] : sent) {
      names += name + "\n";
      card.push_back(to_string(value));
    }
    auto cards = visit(names, card, deadline);
    if (!cards) return std::move(cards.error());
    for (Rank rank{0}; rank.value < cards->size(); ++rank.value) {
      const auto& texts = cards->of(rank).texts;
      if (texts.size() != sent.size())
        return Error(ErrorCode::mismatch, "rank " + std::to_string(rank.value) + " does something else");
      for (std::size_t at = 0; at < sent.size(); ++at) {
        ConstBytes value = as_bytes(texts[at]);
        values_[{rank.value, sent[at].first}] = Buffer(value.begin(), value.end());
      }
    }
    return {};
  }
  std::optional<Result<Cards>> exchange(std::string_view key, const Card& card, Deadline deadline) override {
    return visit(key, card, deadline);
  }
  Result<Buffer> get(Rank from, std::string_view key, Deadline) override {
    auto found = values_.find({from.value, std::string(key)});
    if (found != values_.end()) return found->second;
    return Error(ErrorCode::invalid_argument, "rank " + std::to_string(from.value) + " has put no " + std::string(key));
  }
  void abort(std::string_view reason) noexcept override {
    if (auto store = enter(Deadline::after(store::answer_time))) (*store)->abort(reason);
  }

 private:
  Result<Cards> visit(std::string_view key, const Card& card, Deadline deadline) {
    auto store = enter(deadline);
    if (!store) return std::move(store.error());
    auto cards = (*store)->exchange(key, card, deadline);
    if (!cards) return cards;
    HVD_RETURN_IF_ERROR((*store)->leave(deadline));
    return cards;
  }
  Result<std::unique_ptr<StoreClient>> enter(Deadline deadline) const {
    auto value_of = [this](const char* name) { return environment_.get(name).value_or(""); };
    if (environment_.has(local_store::address_variable))
      return LocalStoreClient::join(value_of(local_store::address_variable), value_of(local_store::secret_variable),
                                    identity_.rank, identity_.size, deadline);
    return enter_tcp_store(value_of("HOROVOD_GLOO_RENDEZVOUS_ADDR"), value_of("HOROVOD_GLOO_RENDEZVOUS_PORT"),
                           value_of("HOROVOD_SECRET_KEY"), identity_.rank, identity_.size, deadline);
  }

  Environment environment_;
  Identity identity_;
  std::vector<std::pair<std::string, Buffer>> unsent_;
  std::map<std::pair<std::int32_t, std::string>, Buffer> values_;
};

// Returns the bootstrap that reaches the other ranks. With horovodrun's store several programs of a rank may use a
// bridge, one after the other. With horovodrun's PMIx server only one program may.
std::unique_ptr<Bootstrap> way_to_the_others(const Environment& environment) {
  auto store = std::make_unique<ByVisits>();
  if (store->detected(environment)) return store;
  for (const Maker& maker : registry())
    if (std::string_view(maker.name) == "pmix") return maker.make();
  return nullptr;
}

// The bridge lasts as long as the process, because MPI_Finalize uses it again, on any thread and at any time.
Result<PmiBridge*> open_lasting_bridge() {
  std::vector<std::string> warnings;  // the start of a runtime tells the user about the failure
  auto completed = posix::with_settings_files(Environment::of_this_process(), warnings);
  if (!completed) return std::move(completed.error());
  const Environment& environment = *completed;
  auto config = Config::from(environment, warnings);
  if (!config) return std::move(config.error());
  log::configure(config->log);
  if (owner_of_place(environment) != 0) return nullptr;  // this program is a child of a rank
  std::unique_ptr<Bootstrap> bootstrap = way_to_the_others(environment);
  auto identity = bootstrap->join(environment, *config);
  if (!identity) return std::move(identity.error());
  log::set_rank(identity->rank.value);
  if (identity->size == 1) return nullptr;
  auto patience = milliseconds_of(config->start_timeout_s);
  auto bridge = PmiBridge::open(*bootstrap.release(), *identity, patience);
  if (!bridge) return std::move(bridge.error());
  return bridge->release();
}

}  // namespace
}  // namespace hvd::bootstrap

// Collective over the job. Fills in the values of PMI_FD, PMI_RANK and PMI_SIZE as texts of at most `bytes`. They stay
// empty for a job of one rank. On failure sets `failure` to a text that is never freed.
extern "C" __attribute__((visibility("default"))) void horovod_open_bridge(char* fd, char* rank, char* size,
                                                                           std::size_t bytes, const char** failure) {
  auto bridge = hvd::bootstrap::open_lasting_bridge();
  if (!bridge) {
    *failure = (new std::string(bridge.error().message))->c_str();
    return;
  }
  if (*bridge == nullptr) return;
  std::snprintf(fd, bytes, "%d", (*bridge)->descriptor());
  std::snprintf(rank, bytes, "%d", (*bridge)->identity().rank.value);
  std::snprintf(size, bytes, "%d", (*bridge)->identity().size);
}
