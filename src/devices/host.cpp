// The host's own memory. Work is done at once when it is queued, so its events have always come.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "devices/device.hpp"
#include "devices/host/host_moves.hpp"

namespace hvd::devices {

namespace {

class Host final : public Device {
 public:
  Host() : Device(DeviceKind::host, 0) {}

  Result<Memory> allocate(std::size_t bytes, Where, Stream) override {
    void* memory = std::malloc(std::max<std::size_t>(bytes, 1));  // the C library has the pool
    if (memory == nullptr)
      return Error(ErrorCode::out_of_memory, "no memory for " + std::to_string(bytes) + " bytes on the host");
    return Memory(memory, memory, [](void* owner) { std::free(owner); });
  }
  Result<std::shared_ptr<void>> stream() override { return std::shared_ptr<void>(std::shared_ptr<void>(), this); }

  Status move(Stream, std::span<const Move> moves, const Treatment& treatment) override {
    return move_on_host(moves, treatment);
  }

  Result<Event> record(Stream) override { return Event{}; }
  Status wait(Stream, Event) override { return {}; }
  Result<bool> query(Event, posix::WaitWord*) override { return true; }
};

}  // namespace

std::unique_ptr<Device> make_host() {
  return std::make_unique<Host>();
}

}  // namespace hvd::devices
