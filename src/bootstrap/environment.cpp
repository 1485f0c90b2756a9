// The bootstrap of ranks that our own horovodrun started without PMIx. HOROVOD_RANK and HOROVOD_SIZE tell this process
// its rank and the number of ranks. The launcher's local store carries the values. A single rank needs no store.
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>

#include "base/text/number.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/own_values.hpp"
#include "bootstrap/store/local_store.hpp"
#include "bootstrap/store/verbs.hpp"

namespace hvd::bootstrap {
namespace {

constexpr int most_ranks = 1 << 24;

Result<int> needed_number(const Environment& environment, const char* name, int smallest, int largest) {
  std::string text = environment.get(name).value_or("");
  auto value = number_in<int>(text);
  if (!value || *value < smallest || *value > largest)
    return Error(ErrorCode::invalid_argument, std::string(name) + "=\"" + text + "\": expected a number from " +
                                                  std::to_string(smallest) + " to " + std::to_string(largest));
  return *value;
}

class EnvironmentBootstrap final : public Bootstrap {
 public:
  const char* name() const override { return "environment"; }

  // One of the two variables shows that this bootstrap is meant. If the other one is missing, join() reports it.
  bool detected(const Environment& environment) const override {
    if (!environment.has("HOROVOD_RANK") && !environment.has("HOROVOD_SIZE")) return false;
    // With HOROVOD_GLOO_RENDEZVOUS_ADDR alone, the job's store is not on this machine: rendezvous.cpp handles that job.
    return environment.has(local_store::address_variable) || !environment.has("HOROVOD_GLOO_RENDEZVOUS_ADDR");
  }

  Result<Identity> join(const Environment& environment, const Config& config) override {
    bool rank_is_set = environment.has("HOROVOD_RANK");
    bool size_is_set = environment.has("HOROVOD_SIZE");
    if (!rank_is_set || !size_is_set) {
      std::string found = rank_is_set ? "HOROVOD_SIZE is not set, but HOROVOD_RANK is" : "HOROVOD_RANK is not set";
      if (!rank_is_set) found += size_is_set ? ", but HOROVOD_SIZE is" : ", nor is HOROVOD_SIZE";
      return Error(ErrorCode::invalid_argument, found + ": set both or none, or start the ranks with horovodrun");
    }
    auto size = needed_number(environment, "HOROVOD_SIZE", 1, most_ranks);
    if (!size) return std::move(size.error());
    auto rank = needed_number(environment, "HOROVOD_RANK", 0, *size - 1);
    if (!rank) {
      rank.error().message += ", since HOROVOD_SIZE=" + std::to_string(*size);
      return std::move(rank.error());
    }
    identity_ = Identity{Rank{*rank}, *size, "process-" + std::to_string(::getpid())};
    if (*size > 1) HVD_RETURN_IF_ERROR(join_store(environment, config));
    return identity_;
  }

  Status put(std::string_view key, ConstBytes value) override {
    if (store_ != nullptr) return store_->put(key, value, Deadline::after(store::answer_time));
    return alone_.put(key, value);
  }

  Result<Buffer> get(Rank from, std::string_view key, Deadline deadline) override {
    if (store_ != nullptr) return store_->get(from, key, deadline);
    return alone_.get(from, key);
  }

  Status fence(Deadline deadline) override { return store_ != nullptr ? store_->fence(deadline) : Status(); }

  std::optional<Result<Cards>> exchange(std::string_view key, const Card& card, Deadline deadline) override {
    if (store_ == nullptr) return std::nullopt;
    return store_->exchange(key, card, deadline);
  }

  void abort(std::string_view reason) noexcept override {
    if (store_ != nullptr) store_->abort(reason);
  }

 private:
  Status join_store(const Environment& environment, const Config& config) {
    for (const char* name : {local_store::address_variable, local_store::secret_variable})
      if (!environment.has(name))
        return Error(ErrorCode::invalid_argument,
                     "HOROVOD_RANK and HOROVOD_SIZE=" + std::to_string(identity_.size) + " are set, but " + name +
                         " is not, so the other ranks cannot be found: start them with horovodrun");
    auto patience = milliseconds_of(config.start_timeout_s);
    auto store = LocalStoreClient::join(*environment.get(local_store::address_variable),
                                        *environment.get(local_store::secret_variable), identity_.rank, identity_.size,
                                        Deadline::after(patience));
    if (!store) return std::move(store.error());
    store_ = std::move(*store);
    identity_.job = store_->job();
    return {};
  }

  Identity identity_;
  std::unique_ptr<StoreClient> store_;  // null if the job has a single rank
  OwnValues alone_;
};

}  // namespace

std::unique_ptr<Bootstrap> make_environment() {
  return std::make_unique<EnvironmentBootstrap>();
}

}  // namespace hvd::bootstrap
