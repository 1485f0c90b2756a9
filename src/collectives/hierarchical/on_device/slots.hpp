#pragma once
// The streams and the memory through which the chunks of a team's batches pass. All plans of a team share them, since
// its batches run one after the other.
#include <array>
#include <cstddef>
#include <memory>
#include <optional>

#include "collectives/hierarchical/on_device/estimate.hpp"

namespace hvd::collectives::hierarchical {

// Every slot is used again by a later chunk, also by one of the next batch. The event says from when on.
class Slots {
 public:
  // How many chunks are between the packing and the node's link, and how many on their way. The latter covers the five
  // stages from the reduce_scatter to the allgather even if all of them take equally long, and one more.
  static constexpr std::size_t packed_count = 2, way_count = 6;

  // A chunk on one side of the node's link.
  struct Packed {
    devices::Memory memory;
    Event filled{}, free{};
  };
  // This rank's share of a chunk.
  struct Way {
    devices::Memory share, on_host;
    Event copied{};    // the share is in host memory
    Event returned{};  // the reduced share is back
    Event free{};      // on a node of one rank: the share may be filled again
  };

  // The slots of the team, which are made when they are first asked for. Those of a team that cannot have them have a
  // failure.
  static std::shared_ptr<Slots> of(Team& team);
  explicit Slots(const Team& team);
  ~Slots();
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  // Makes room for shares of this many bytes, on the host only if a link of the host carries them. The memory before is
  // given back when the device has unpacked all that was queued.
  Status reserve(std::size_t share_bytes, bool is_over_host);
  // Lets the stream that unpacks wait for the others.
  void gather_streams();
  // Waits until the device has done all that was queued.
  void finish();
  const std::optional<Error>& failure() const { return failure_; }

  Packed& packed(std::int64_t chunk) { return packed_[static_cast<std::size_t>(chunk) % packed_count]; }
  Packed& unpacked(std::int64_t chunk) { return unpacked_[static_cast<std::size_t>(chunk) % packed_count]; }
  Way& way(std::int64_t chunk) { return ways_[static_cast<std::size_t>(chunk) % way_count]; }

  // What was measured with the rail over links of the host, or of the device.
  std::optional<StageCosts>& costs(bool is_over_host) { return is_over_host ? costs_[0] : costs_[1]; }

  // The streams of the stages. `rail` is the one to the host if the rail is a host link.
  Stream pack() const { return {streams_[0].get()}; }
  Stream node() const { return {streams_[1].get()}; }
  Stream rail() const { return {streams_[2].get()}; }
  Stream back() const { return {streams_[3].get()}; }
  Stream unpack() const { return {streams_[4].get()}; }

 private:
  Status allocate(devices::Memory& memory, std::size_t bytes, devices::Where where);

  devices::Device& device_;
  const std::size_t rails_;
  std::size_t share_bytes_ = 0, host_bytes_ = 0;
  std::array<std::shared_ptr<void>, 5> streams_;
  std::array<Packed, packed_count> packed_, unpacked_;
  std::array<Way, way_count> ways_;
  std::array<std::optional<StageCosts>, 2> costs_;
  std::optional<Error> failure_;
};

}  // namespace hvd::collectives::hierarchical
