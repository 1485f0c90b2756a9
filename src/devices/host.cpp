// The host's own memory. Work is done at once when it is queued, so its events have always come.
#include <cstdlib>
#include <limits>
#include <string>

#include "devices/device.hpp"
#include "devices/host/host_moves.hpp"

namespace hvd::devices {

namespace {

class Host final : public Device {
 public:
  Host() : Device(DeviceKind::host, 0) {}

  Result<Memory> allocate(std::size_t bytes, Where, Stream) override {
    // Whole cache lines: some frameworks copy results that begin elsewhere. The C library has the pool.
    constexpr std::size_t line = 64;
    const std::size_t lines = bytes / line + (bytes % line != 0 || bytes == 0 ? 1 : 0);
    void* memory =
        lines > std::numeric_limits<std::size_t>::max() / line ? nullptr : std::aligned_alloc(line, lines * line);
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
