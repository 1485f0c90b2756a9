// Ranks that horovodrun started on many hosts over ssh: HOROVOD_RANK and HOROVOD_SIZE say who this is, and a store
// inside of the launcher, reached over TCP, carries the values (store/tcp_server.hpp; the variables are its
// variables()).
#include <memory>
#include <string>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/launch.hpp"
#include "bootstrap/store/local_store.hpp"
#include "bootstrap/store/tcp_client.hpp"

namespace hvd::bootstrap {
namespace {

constexpr auto store_answer_time = std::chrono::seconds(30);  // for what the store answers without waiting for anybody

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
    auto rank = number_in(environment, "HOROVOD_RANK");
    auto size = number_in(environment, "HOROVOD_SIZE");
    if (!rank || !size || *rank >= *size)
      return Error(ErrorCode::invalid_argument, "HOROVOD_RANK=" + *environment.get("HOROVOD_RANK") +
                                                    ", HOROVOD_SIZE=" + *environment.get("HOROVOD_SIZE") +
                                                    ": expected a rank from 0 to the size less 1");
    auto patience = milliseconds_of(config.start_timeout_s);
    auto store = enter_tcp_store(*environment.get("HOROVOD_GLOO_RENDEZVOUS_ADDR"),
                                 *environment.get("HOROVOD_GLOO_RENDEZVOUS_PORT"),
                                 *environment.get("HOROVOD_SECRET_KEY"), Rank{*rank}, *size, Deadline::after(patience));
    if (!store) return std::move(store.error());
    store_ = std::move(*store);
    return Identity{Rank{*rank}, *size, store_->job()};
  }

  Status put(std::string_view key, ConstBytes value) override {
    return store_->put(key, value, Deadline::after(store_answer_time));
  }
  Result<Buffer> get(Rank from, std::string_view key, Deadline deadline) override {
    return store_->get(from, key, deadline);
  }
  Status fence(Deadline deadline) override { return store_->fence(deadline); }
  std::optional<Result<Cards>> exchange(std::string_view key, const Card& card, Deadline deadline) override {
    return store_->exchange(key, card, deadline);
  }
  void abort(std::string_view reason) noexcept override { store_->abort(reason); }

 private:
  std::unique_ptr<StoreClient> store_;  // after join()
};

}  // namespace

std::unique_ptr<Bootstrap> make_rendezvous() {
  return std::make_unique<Rendezvous>();
}

}  // namespace hvd::bootstrap
