#pragma once
// A GPU as a Device.
#include <chrono>
#include <memory>

#include "base/settings/environment.hpp"
#include "devices/cuda/descriptors.hpp"
#include "devices/cuda/events.hpp"
#include "devices/cuda/kernel_table.hpp"
#include "devices/cuda/launches.hpp"
#include "devices/cuda/pool.hpp"
#include "devices/cuda/watcher.hpp"
#include "devices/device.hpp"

namespace hvd::devices::cuda {

class Gpu final : public Device {
 public:
  static Result<std::unique_ptr<Device>> open(int ordinal, const Environment& environment);
  // Does not wait for work of the program that never ends.
  ~Gpu() override;
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  Result<Memory> allocate(std::size_t bytes, Where where, Stream user) override;
  Result<std::shared_ptr<void>> stream() override;
  Status move(Stream stream, std::span<const Move> moves, const Treatment& treatment) override;
  Result<Event> record(Stream stream) override;
  Status wait(Stream stream, Event event) override;
  Result<bool> query(Event event, posix::WaitWord* wake) override;

 private:
  // What streams and memory need that outlive the device.
  struct Parts {
    explicit Parts(std::shared_ptr<const hvd::cuda::Context> of_gpu);
    const std::shared_ptr<const hvd::cuda::Context> context;
    const std::shared_ptr<Health> health;
    const KernelTable kernels;
    Events events;
  };

  Gpu(std::shared_ptr<Parts> parts, bool copies_one_by_one, std::chrono::duration<double> patience, int memory_node);
  Status copy(Stream stream, std::span<const Move> moves, std::size_t element_bytes);
  Status launch(Stream stream, std::span<const Move> moves, const Treatment& treatment);
  Status launch(const Launch& planned, hvd::cuda::StreamHandle stream, MoveList& list);
  Status copy_descriptors(hvd::cuda::StreamHandle stream, const DescriptorRing::Piece& piece, std::size_t bytes);
  Result<Launch> plan_launch(std::span<const Move> moves, const Treatment& treatment, const Descriptors& descriptors,
                             MoveList& list) const;
  bool is_for_copies(std::span<const Move> moves, std::size_t element_bytes) const;

  std::shared_ptr<Parts> parts_;
  std::shared_ptr<Watcher> watcher_;
  std::shared_ptr<Pool> pool_;
  std::shared_ptr<DescriptorRing> descriptors_ = std::make_shared<DescriptorRing>();
  const bool copies_one_by_one_;
  const std::chrono::duration<double> patience_;  // with the program's work, at the end
  const Chip chip_;
};

}  // namespace hvd::devices::cuda
