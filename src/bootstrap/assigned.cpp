// The bootstrap of jobs whose ranks come and go, which our own horovodrun starts (--min-np). HOROVOD_ELASTIC_PROCESS
// tells the process its number in the job, which it keeps. Its rank is asked for before each start: horovodrun answers
// when it has decided which processes are the ranks from now on. The store in horovodrun (store/generations.hpp)
// carries the question and the values.
#include <memory>
#include <string>
#include <utility>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/store/tcp_client.hpp"

namespace hvd::bootstrap {
namespace {

constexpr const char* process_variable = "HOROVOD_ELASTIC_PROCESS";

class Assigned final : public Bootstrap {
 public:
  const char* name() const override { return "assigned"; }
  bool detected(const Environment& environment) const override { return environment.has(process_variable); }
  bool assigns() const override { return true; }

  // horovodrun ends the job if it cannot answer in time (--elastic-timeout). If horovodrun or its host is gone, the
  // connection ends.
  Result<Identity> join(const Environment& environment, const Config& config) override {
    HVD_RETURN_IF_ERROR(enter(environment, config));
    return store_->assign(std::exchange(progress_, Progress{}), Deadline::never());
  }
  void set_progress(const Progress& progress) override { progress_ = progress; }

  std::vector<HostNews> take_news() override {
    return store_ != nullptr ? store_->take_news() : std::vector<HostNews>();
  }

  Status put(std::string_view key, ConstBytes value) override {
    return store_->put(key, value, Deadline::after(answer_time));
  }
  Result<Buffer> get(Rank from, std::string_view key, Deadline deadline) override {
    return store_->get(from, key, deadline);
  }
  Status fence(Deadline deadline) override { return store_->fence(deadline); }
  std::optional<Result<Cards>> exchange(std::string_view key, const Card& card, Deadline deadline) override {
    return store_->exchange(key, card, deadline);
  }
  void abort(std::string_view reason) noexcept override {
    if (store_ != nullptr) store_->abort(reason);
  }

 private:
  static constexpr auto answer_time = std::chrono::seconds(30);  // of the store, where no other process is needed

  Status enter(const Environment& environment, const Config& config) {
    if (store_ != nullptr && !store_->is_broken()) return {};
    for (const char* name :
         {process_variable, "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT", "HOROVOD_SECRET_KEY"})
      if (environment.get(name).value_or("").empty())
        return Error(ErrorCode::invalid_argument,
                     std::string(name) +
                         " is not set, but this is a process of an elastic job: start it with "
                         "horovodrun --min-np");
    auto process = environment.number(process_variable);
    if (!process)
      return Error(ErrorCode::invalid_argument, std::string(process_variable) + "=" +
                                                    *environment.get(process_variable) +
                                                    ": expected the number that horovodrun has set");
    store_.reset();
    auto store = enter_tcp_store(*environment.get("HOROVOD_GLOO_RENDEZVOUS_ADDR"),
                                 *environment.get("HOROVOD_GLOO_RENDEZVOUS_PORT"),
                                 *environment.get("HOROVOD_SECRET_KEY"), Rank{*process}, 0, start_deadline(config));
    if (!store) return std::move(store.error());
    store_ = std::move(*store);
    return {};
  }

  Progress progress_;
  std::unique_ptr<StoreClient> store_;  // null until the first join
};

}  // namespace

std::unique_ptr<Bootstrap> make_assigned() {
  return std::make_unique<Assigned>();
}

}  // namespace hvd::bootstrap
