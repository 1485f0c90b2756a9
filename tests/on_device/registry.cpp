// The table of devices of this test's program, in place of the one that the build makes from src/devices/: its
// processes have a late device.
#include "devices/registry.hpp"

#include "on_device/program.hpp"

namespace hvd::devices {

std::unique_ptr<Device> make_host();

namespace {

// Hands everything on to the process's late device, which lives longer than a runtime.
class Late final : public Device {
 public:
  Late() : Device(on_device::device_of_process().kind(), on_device::device_of_process().ordinal()) {}
  Result<Memory> allocate(std::size_t bytes, Where where, Stream user) override {
    return it_.allocate(bytes, where, user);
  }
  Result<std::shared_ptr<void>> stream() override { return it_.stream(); }
  Status move(Stream stream, std::span<const Move> moves, const Treatment& treatment) override {
    return it_.move(stream, moves, treatment);
  }
  Result<Event> record(Stream stream) override { return it_.record(stream); }
  Status wait(Stream stream, Event event) override { return it_.wait(stream, event); }
  Result<bool> query(Event event, posix::WaitWord* wake) override { return it_.query(event, wake); }

 private:
  testing::LateDevice& it_ = on_device::device_of_process();
};

std::unique_ptr<Device> make_late() {
  return std::make_unique<Late>();
}

}  // namespace

std::span<const Maker> registry() {
  static constexpr Maker makers[] = {{"host", &make_host}, {"late", &make_late}};
  return makers;
}

}  // namespace hvd::devices
