// The bootstrap of ranks that horovodrun started on many hosts over ssh, and of ranks that somebody else started and
// gave the same variables. HOROVOD_RANK and HOROVOD_SIZE tell this process its rank and the number of ranks. A store
// that is reached over TCP carries the values (store/tcp_server.hpp; its variables() tell where it is). It is inside
// the launcher, or of the process that has opened a meeting (api/meetings.cpp). With HOROVOD_RENDEZVOUS_SERVE rank 0
// itself serves it, on the port that the variables name; the others wait for it. If the environment says which ranks
// share a host, the first rank of each host speaks with the store for all ranks of the host (meeting/node_circle.hpp),
// because the store may be far away and has only one thread.
#include <memory>
#include <optional>
#include <string>

#include "base/checksums/sha256.hpp"
#include "base/text/comma_list.hpp"
#include "base/text/number.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/launch/launch.hpp"
#include "bootstrap/meeting/node_circle.hpp"
#include "bootstrap/store/local_store.hpp"
#include "bootstrap/store/tcp_client.hpp"
#include "bootstrap/store/tcp_server.hpp"
#include "bootstrap/store/verbs.hpp"

namespace hvd::bootstrap {
namespace {

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
    addresses_ = *environment.get("HOROVOD_GLOO_RENDEZVOUS_ADDR");
    if (config.rendezvous_serve) {
      waits_for_ = Store::may_come_later;
      if (*rank == 0) HVD_RETURN_IF_ERROR(serve(config));
    }
    auto local_rank = number_of(environment, "HOROVOD_LOCAL_RANK", 0);
    if (!local_rank) return std::move(local_rank.error());
    auto local_size = number_of(environment, "HOROVOD_LOCAL_SIZE", 1);
    if (!local_size) return std::move(local_size.error());
    bool is_circle = *local_rank < *local_size && *local_size <= *size;
    circle_.emplace(identity_.job + " on " + environment.get("HOROVOD_HOSTNAME").value_or(""),
                    !is_circle || *local_rank == 0, is_circle ? static_cast<int>(*local_size) - 1 : 0);
    if (circle_->leads()) HVD_RETURN_IF_ERROR(enter(Deadline::after(milliseconds_of(config.start_timeout_s))));
    return identity_;
  }

  Status put(std::string_view key, ConstBytes value) override {
    Deadline deadline = Deadline::after(store::answer_time);
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

  // On rank 0, if it serves the store.
  Status serve(const Config& config) {
    const std::string text = *environment_.get("HOROVOD_GLOO_RENDEZVOUS_PORT");
    auto port = number_in<int>(text);
    if (!port || *port < 1 || *port > 65535)
      return Error(ErrorCode::invalid_argument, "HOROVOD_GLOO_RENDEZVOUS_PORT=" + text +
                                                    ": rank 0 is to serve there (HOROVOD_RENDEZVOUS_SERVE), so "
                                                    "expected a port from 1 to 65535");
    TcpStoreServer::Options options;
    options.job = identity_.job;
    options.size = identity_.size;
    options.secret = *environment_.get("HOROVOD_SECRET_KEY");
    options.first_port = options.last_port = *port;
    options.interfaces = items_of(config.network_interfaces);
    auto server = TcpStoreThread::start(std::move(options));
    if (!server) {
      server.error().message =
          "rank 0 is to serve the store of the job (HOROVOD_RENDEZVOUS_SERVE), but cannot: " + server.error().message;
      return std::move(server.error());
    }
    server_ = std::move(*server);
    addresses_ = server_->server().addresses();
    return {};
  }

  Status enter(Deadline deadline) {
    if (store_ != nullptr) return {};
    auto store =
        enter_tcp_store(addresses_, *environment_.get("HOROVOD_GLOO_RENDEZVOUS_PORT"),
                        *environment_.get("HOROVOD_SECRET_KEY"), identity_.rank, identity_.size, deadline, waits_for_);
    if (!store) return std::move(store.error());
    store_ = std::move(*store);
    return {};
  }

  Identity identity_;
  Environment environment_;
  std::optional<NodeCircle> circle_;
  std::string addresses_;  // where the store is
  Store waits_for_ = Store::is_there;
  std::unique_ptr<TcpStoreThread> server_;  // only on a rank 0 that serves
  std::unique_ptr<StoreClient> store_;      // null until this rank has to use the store
};

}  // namespace

std::unique_ptr<Bootstrap> make_rendezvous() {
  return std::make_unique<Rendezvous>();
}

}  // namespace hvd::bootstrap
