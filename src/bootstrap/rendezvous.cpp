// The bootstrap of ranks that horovodrun started on many hosts over ssh. HOROVOD_RANK and HOROVOD_SIZE tell this
// process its rank and the number of ranks. A store inside of the launcher, reached over TCP, carries the values
// (store/tcp_server.hpp; its variables() tell where it is). If the environment says which ranks share a host, the first
// rank of each host speaks with the store for all ranks of the host (meeting/node_circle.hpp), because the store may be
// far away and has only one thread.
#include <memory>
#include <optional>
#include <string>

#include "base/sha256.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/launch/launch.hpp"
#include "bootstrap/meeting/node_circle.hpp"
#include "bootstrap/store/local_store.hpp"
#include "bootstrap/store/tcp_client.hpp"

namespace hvd::bootstrap {
namespace {

// limit for answers of the store that do not depend on another rank
constexpr auto store_answer_time = std::chrono::seconds(30);

class Rendezvous final : public Bootstrap {
 public:
  const char* name() const override { return "rendezvous"; }

  bool detected(const Environment& environment) const override {
    return environment.has("HOROVOD_GLOO_RENDEZVOUS_ADDR") && environment.has("HOROVOD_RANK") &&
           !environment.has(local_store::address_variable);
  }

  Result<Identity> join(const Environment& environment, const Config& config) override {
    for (const char* name : {"HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_GLOO_RENDEZVOUS_ADDR",
                             "HOROVOD_GLOO_RENDEZVOUS_PORT", "HOROVOD_SECRET_KEY"})
      if (environment.get(name).value_or("").empty())
        return Error(ErrorCode::invalid_argument, std::string(name) +
                                                      " is not set, but the ranks are to meet at a store over TCP "
                                                      "(HOROVOD_GLOO_RENDEZVOUS_ADDR): start them with horovodrun");
    auto rank = environment.number("HOROVOD_RANK");
    auto size = environment.number("HOROVOD_SIZE");
    if (!rank || !size || *rank >= *size)
      return Error(ErrorCode::invalid_argument, "HOROVOD_RANK=" + *environment.get("HOROVOD_RANK") +
                                                    ", HOROVOD_SIZE=" + *environment.get("HOROVOD_SIZE") +
                                                    ": expected a rank from 0 to the size less 1");
    identity_ = Identity{Rank{*rank}, *size, name_of_job(*environment.get("HOROVOD_SECRET_KEY"))};
    environment_ = environment;
    int local_rank = environment.number("HOROVOD_LOCAL_RANK").value_or(0);
    int local_size = environment.number("HOROVOD_LOCAL_SIZE").value_or(1);
    bool is_circle = local_rank < local_size;
    circle_.emplace(identity_.job + " on " + environment.get("HOROVOD_HOSTNAME").value_or(""),
                    !is_circle || local_rank == 0, is_circle ? local_size - 1 : 0);
    if (circle_->leads()) HVD_RETURN_IF_ERROR(enter(Deadline::after(milliseconds_of(config.start_timeout_s))));
    return identity_;
  }

  Status put(std::string_view key, ConstBytes value) override {
    Deadline deadline = Deadline::after(store_answer_time);
    HVD_RETURN_IF_ERROR(enter(deadline));
    return store_->put(key, value, deadline);
  }
  Result<Buffer> get(Rank from, std::string_view key, Deadline deadline) override {
    HVD_RETURN_IF_ERROR(enter(deadline));
    return store_->get(from, key, deadline);
  }
  Status fence(Deadline deadline) override {
    HVD_RETURN_IF_ERROR(enter(deadline));
    return store_->fence(deadline);
  }

  std::optional<Result<Cards>> exchange(std::string_view key, const Card& card, Deadline deadline) override {
    auto ask = [&](const std::vector<BroughtCard>& cards) -> Result<Buffer> {
      HVD_RETURN_IF_ERROR(enter(deadline));
      return store_->exchange(key, cards, deadline);
    };
    auto table = circle_->table_of_all({identity_.rank, encode(card)}, key, deadline, ask);
    if (!table) return std::move(table.error());
    return Cards::decode(std::move(*table), identity_.size);
  }

  void abort(std::string_view reason) noexcept override {
    if (enter(Deadline::after(std::chrono::seconds(1)))) store_->abort(reason);
  }

 private:
  // The name of the node circle is equal on all its ranks, also on those that have not asked the store.
  static std::string name_of_job(const std::string& secret) {
    return "rendezvous-" + hexadecimal(hmac_sha256(as_bytes(secret), as_bytes("the name of the job"))).substr(0, 16);
  }

  Status enter(Deadline deadline) {
    if (store_ != nullptr) return {};
    auto store = enter_tcp_store(*environment_.get("HOROVOD_GLOO_RENDEZVOUS_ADDR"),
                                 *environment_.get("HOROVOD_GLOO_RENDEZVOUS_PORT"),
                                 *environment_.get("HOROVOD_SECRET_KEY"), identity_.rank, identity_.size, deadline);
    if (!store) return std::move(store.error());
    store_ = std::move(*store);
    return {};
  }

  Identity identity_;
  Environment environment_;
  std::optional<NodeCircle> circle_;
  std::unique_ptr<StoreClient> store_;  // null until this rank has to use the store
};

}  // namespace

std::unique_ptr<Bootstrap> make_rendezvous() {
  return std::make_unique<Rendezvous>();
}

}  // namespace hvd::bootstrap
