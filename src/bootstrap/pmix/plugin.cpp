#include "bootstrap/pmix/plugin.hpp"

#include <chrono>
#include <cstdint>

#include "native/pmix/client.hpp"
#include "native/pmix/server.hpp"

namespace hvd::bootstrap {
namespace {

class OverClient final : public Bootstrap {
 public:
  const char* name() const override { return "pmix"; }
  bool detected(const Environment&) const override { return true; }

  Result<Identity> join(const Environment&, const Config& config) override {
    auto patience = milliseconds_of(config.start_timeout_s);
    auto client = pmix::Client::open(Deadline::after(patience));
    if (!client) return std::move(client.error());
    client_ = std::move(*client);
    return Identity{Rank{static_cast<std::int32_t>(client_->rank())}, static_cast<int>(client_->size()),
                    client_->job()};
  }
  Status put(std::string_view key, ConstBytes value) override { return client_->put(key, value); }
  Result<Buffer> get(Rank from, std::string_view key, Deadline deadline) override {
    return client_->get(static_cast<std::uint32_t>(from.value), key, deadline);
  }
  Status fence(Deadline deadline) override { return client_->fence(deadline); }
  void abort(std::string_view reason) noexcept override { client_->abort(reason); }

 private:
  std::unique_ptr<pmix::Client> client_;
};

const PmixPlugin table = {posix::plugin_stamp(sizeof(PmixPlugin)),
                          []() -> std::unique_ptr<Bootstrap> { return std::make_unique<OverClient>(); },
                          &pmix::make_server};

}  // namespace
}  // namespace hvd::bootstrap

extern "C" __attribute__((visibility("default"))) const void* horovod_pmix_plugin() {
  return &hvd::bootstrap::table;
}
