#pragma once
// Ranks of one process whose tensors are on GPUs of the double, connected by the shipped plugins over the double of
// NCCL.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "conformance/exercise.hpp"
#include "devices/of_rank/devices.hpp"
#include "transport/registry.hpp"

namespace hvd::testing {

// The tensors of one rank, copied to its device's memory for the time of a collective. Tensors that overlap on the host
// also overlap on the device.
class OnGpu {
 public:
  OnGpu(devices::Device& device, Stream stream, const Part& part);
  const Part& part() const { return part_; }
  // Waits for the stream, and copies the tensors back.
  void download();

 private:
  struct Piece {
    std::byte *begin, *end;
    devices::Memory memory{}, pages{};
    std::size_t bytes() const { return static_cast<std::size_t>(end - begin); }
  };
  void add(const TensorView& view);
  void* place_of(const TensorView& view) const;
  void move(const void* from, void* to, std::size_t bytes);

  devices::Device& device_;
  const Stream stream_;
  Part part_;
  std::vector<Piece> pieces_;
};

class RanksOnGpus final : public Performers {
 public:
  explicit RanksOnGpus(const std::vector<int>& shape, Config config = {});
  ~RanksOnGpus() override;

  int size() const override { return ranks_.size(); }
  bool is_here(int) const override { return true; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  collectives::Team& team() override { return *teams_.front(); }
  Tasks plan(const collectives::Algorithm& algorithm, const Collective& collective) override;
  Progress run(Tasks& tasks, const std::vector<Part>& parts) override;
  void abort() override { abort(Error(ErrorCode::peer_lost, "the test ends the links")); }
  void abort(const Error& reason);

  // What the links do themselves.
  std::vector<Verb> verbs_of_links();
  // Null if the ranks have agreed to do without NCCL.
  transport::Link* link(int rank) { return links_[static_cast<std::size_t>(rank)].get(); }
  devices::Device& device_of(int rank) { return *devices_[static_cast<std::size_t>(rank)]; }
  Stream stream_of(int rank) const { return {streams_[static_cast<std::size_t>(rank)].get()}; }
  // Steps the tasks until none is pending. Returns the worst that one has returned.
  static Progress step_until_none_is_pending(Tasks& tasks);

 private:
  void connect();
  std::shared_ptr<devices::Devices> devices_for(RankThread& rank);

  std::vector<RankThread*> threads_;
  std::vector<std::shared_ptr<devices::Device>> devices_;
  RanksInTurn ranks_;
  std::vector<std::shared_ptr<void>> streams_;
  std::vector<std::unique_ptr<transport::Transport>> transports_;
  std::vector<std::unique_ptr<transport::Link>> links_;
  std::vector<std::unique_ptr<collectives::Team>> teams_;
  std::uint64_t sequence_ = 0;
};

std::unique_ptr<collectives::Algorithm> native_algorithm();

}  // namespace hvd::testing
