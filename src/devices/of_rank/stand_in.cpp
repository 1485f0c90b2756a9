#include "devices/of_rank/stand_in.hpp"

#include "devices/registry.hpp"

namespace hvd::devices {

std::unique_ptr<Device> make_host();

namespace {

class StandIn final : public Device {
 public:
  explicit StandIn(DeviceKind kind) : Device(kind, 0), host_(make_host()) {}

  Result<Memory> allocate(std::size_t bytes, Where where, Stream) override { return host_->allocate(bytes, where, {}); }
  Result<std::shared_ptr<void>> stream() override { return host_->stream(); }
  Status move(Stream stream, std::span<const Move> moves, const Treatment& treatment) override {
    return host_->move(stream, moves, treatment);
  }
  Result<Event> record(Stream stream) override { return host_->record(stream); }
  Status wait(Stream stream, Event event) override { return host_->wait(stream, event); }
  Result<bool> query(Event event, posix::WaitWord* wake) override { return host_->query(event, wake); }

 private:
  const std::unique_ptr<Device> host_;
};

}  // namespace

std::unique_ptr<Device> make_stand_in(DeviceKind kind) {
  return std::make_unique<StandIn>(kind);
}

}  // namespace hvd::devices
