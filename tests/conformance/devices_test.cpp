// The algorithms for tensors in a device's memory, compared with the naive reference: staged through every transport of
// host memory, directly from device to device, and for one rank alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "collectives/registry.hpp"
#include "devices_in_turn.hpp"
#include "exercise.hpp"

namespace hvd {
namespace {

using testing::DeviceLinks;
using testing::Exercise;
using testing::exercise;
using testing::is_sanitized;
using testing::LateDevice;
using testing::Part;

// The tensors of one rank, copied to its device's memory for the time of the collective. Tensors that overlap on the
// host also overlap on the device.
class Mirror {
 public:
  Mirror(LateDevice& device, Stream stream, const Part& part) : device_(device), stream_(stream), part_(part) {
    for (auto* list : {&part_.in, &part_.out})
      for (const Segment& segment : *list) add(segment.view);
    for (Piece& piece : pieces_)
      piece.memory = device_.upload(stream_, piece.begin, static_cast<std::size_t>(piece.end - piece.begin));
    for (auto* list : {&part_.in, &part_.out})
      for (Segment& segment : *list) segment.view.data = place_of(segment.view);
  }
  const Part& part() const { return part_; }
  void download() {
    for (Piece& piece : pieces_) {
      auto bytes = device_.download(stream_, piece.memory.data(), static_cast<std::size_t>(piece.end - piece.begin));
      std::copy(bytes.begin(), bytes.end(), piece.begin);
    }
  }

 private:
  struct Piece {
    std::byte *begin, *end;
    devices::Memory memory{};
  };
  void add(const TensorView& view) {
    if (view.data == nullptr || view.count == 0) return;
    Piece piece{static_cast<std::byte*>(view.data), static_cast<std::byte*>(view.data) + view.bytes()};
    std::erase_if(pieces_, [&](const Piece& other) {
      if (other.end < piece.begin || piece.end < other.begin) return false;
      piece.begin = std::min(piece.begin, other.begin);
      piece.end = std::max(piece.end, other.end);
      return true;
    });
    pieces_.push_back(std::move(piece));
  }
  void* place_of(const TensorView& view) const {
    auto* data = static_cast<std::byte*>(view.data);
    for (const Piece& piece : pieces_)
      if (data != nullptr && view.count > 0 && piece.begin <= data && data < piece.end)
        return piece.memory.data() + (data - piece.begin);
    return nullptr;
  }

  LateDevice& device_;
  const Stream stream_;
  Part part_;
  std::vector<Piece> pieces_;
};

bool has_hierarchy(DeviceLinks links) {
  return links == DeviceLinks::in_nodes || links == DeviceLinks::in_nodes_and_on_rails;
}

class OnDevices final : public testing::Performers {
 public:
  OnDevices(const std::vector<int>& shape, const std::string& transport, DeviceLinks links)
      : ranks_(shape, transport, links), ranks_of_mean_(has_hierarchy(links) ? shape.front() : 1) {}
  bool is_connected() const { return ranks_.ranks.is_connected(); }

  int size() const override { return ranks_.size(); }
  bool is_here(int) const override { return true; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  int ranks_of_mean() const override { return ranks_of_mean_; }
  collectives::Team& team() override { return ranks_.team(0); }
  Tasks plan(const collectives::Algorithm& algorithm, const Collective& collective) override {
    return ranks_.plan(algorithm, collective);
  }
  Progress run(Tasks& tasks, const std::vector<Part>& parts) override {
    std::vector<std::unique_ptr<Mirror>> mirrors;
    std::vector<Part> on_devices;
    for (int rank = 0; rank < size(); ++rank) {
      mirrors.push_back(
          std::make_unique<Mirror>(ranks_.device(rank), ranks_.stream(rank), parts[static_cast<std::size_t>(rank)]));
      on_devices.push_back(mirrors.back()->part());
    }
    Progress outcome = ranks_.run(tasks, on_devices);
    for (int rank = 0; rank < size(); ++rank) {
      const auto index = static_cast<std::size_t>(rank);
      EXPECT_TRUE(ranks_.device(rank).wait(ranks_.stream(rank), tasks[index]->event()));
      mirrors[index]->download();
    }
    return outcome;
  }
  void abort() override { ranks_.abort(); }

  // Counts the calls that have moved data in this way.
  std::ptrdiff_t moves(int rank, LateDevice::Entry::What what) {
    return std::ranges::count_if(ranks_.device(rank).log(), [&](const LateDevice::Entry& entry) {
      return entry.when == LateDevice::Entry::When::queued && entry.what == what;
    });
  }

 private:
  testing::DevicesInTurn ranks_;
  const int ranks_of_mean_;
};

struct DeviceCase {
  std::string algorithm, transport;
  std::vector<int> shape;
  DeviceLinks links = DeviceLinks::none;

  std::string name() const {
    std::string text = (links == DeviceLinks::in_nodes_and_on_rails ? "torus" : algorithm) + "_" + transport;
    for (int ranks : shape) text += "_" + std::to_string(ranks);
    return text;
  }
  friend void PrintTo(const DeviceCase& entry, std::ostream* out) { *out << entry.name(); }
};

std::vector<DeviceCase> device_cases() {
  constexpr auto flat = DeviceLinks::between_all, in_nodes = DeviceLinks::in_nodes,
                 torus = DeviceLinks::in_nodes_and_on_rails;
  std::vector<DeviceCase> list{
      {"alone", "inproc", {1}}, {"native", "inproc", {2}, flat}, {"native", "inproc", {2, 1}, flat}};
  for (const std::vector<int>& shape : {std::vector{2, 2}, {1, 1}, {3, 3}, {2, 2, 2, 2}, {1, 1, 1}})
    if (!is_sanitized || shape.size() == 2) list.push_back({"hierarchical", "inproc", shape, in_nodes});
  list.push_back({"hierarchical", "tcp", {2, 2}, in_nodes});
  list.push_back({"hierarchical", "inproc", {2, 2}, torus});
  list.push_back({"hierarchical", "inproc", {1, 1, 1}, torus});
  const std::vector<std::string> transports{"inproc", "shm", "tcp"};
  const std::vector<std::vector<int>> shapes{{2}, {3}, {2, 2}};
  for (std::size_t transport = 0; transport < transports.size(); ++transport)
    for (std::size_t shape = 0; shape < shapes.size(); ++shape)
      if (!is_sanitized || transport == shape) list.push_back({"staged", transports[transport], shapes[shape]});
  return list;
}

class DeviceConformance : public ::testing::TestWithParam<DeviceCase> {
 protected:
  DeviceConformance() : ranks(GetParam().shape, GetParam().transport, GetParam().links) {
    EXPECT_TRUE(ranks.is_connected());
    for (const collectives::Maker& maker : collectives::registry())
      if (maker.name == GetParam().algorithm) algorithm = maker.make();
  }
  // Calls the body for every verb that the algorithm can do over the devices.
  template <typename Body>
  void for_every_verb(Body body) {
    int exercised = 0;
    for (const VerbRow& row : verbs()) {
      if (row.verb == Verb::barrier) continue;
      exercised += body(row.verb);
      if (HasFailure()) return;
    }
    EXPECT_GE(exercised, GetParam().algorithm == "hierarchical" ? 1 : 4) << "next to nothing was tested";
  }

  OnDevices ranks;
  std::unique_ptr<collectives::Algorithm> algorithm;
};

TEST_P(DeviceConformance, every_type_size_and_placement_gives_what_the_reference_gives) {
  std::vector<DataType> dtypes{DataType::bf16};
  if (!is_sanitized && GetParam().shape == std::vector{2})
    for (int type = 0; type < data_type_count; ++type) dtypes.push_back(static_cast<DataType>(type));
  for_every_verb([&](Verb verb) {
    bool is_done = false;
    for (DataType dtype : dtypes)
      for (std::int64_t count : {0, 7, 4096})
        for (bool in_place : {false, true}) {
          Exercise what;
          what.dtype = dtype;
          what.count = count;
          what.in_place = in_place;
          what.segments = count == 7 ? 1 : 5;
          what.root = ranks.size() - 1;
          if (reduces(verb) && dtype != DataType::boolean && verb != Verb::adasum) {
            what.prescale = 2.0;
            what.postscale = in_place ? 0.75 : 1.0;
          }
          is_done |= exercise(ranks, *algorithm, verb, what, 2);
          if (HasFailure()) return is_done;
        }
    return is_done;
  });
}

TEST_P(DeviceConformance, more_chunks_than_slots_give_what_the_reference_gives) {
  for_every_verb([&](Verb verb) {
    Exercise what;
    what.count = 900'001;
    what.segments = 7;
    what.root = 0;
    return exercise(ranks, *algorithm, verb, what, is_sanitized ? 1 : 2);
  });
}

TEST_P(DeviceConformance, one_call_moves_a_chunk_of_many_tensors_in_each_direction) {
  using What = LateDevice::Entry::What;
  Exercise what;
  what.count = 300'000;  // three chunks of 512 KB
  what.segments = 200;
  what.postscale = 0.5;
  ASSERT_TRUE(exercise(ranks, *algorithm, Verb::allreduce, what, 1));
  if (GetParam().algorithm == "hierarchical") {
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const auto chunks = ranks.moves(rank, What::inside) / 2;
      EXPECT_GE(chunks, 1);
      EXPECT_EQ(ranks.moves(rank, What::inside), 2 * chunks) << "each is packed and unpacked in one call";
      const bool is_torus = GetParam().links == DeviceLinks::in_nodes_and_on_rails;
      for (What copy : {What::to_host, What::to_device}) EXPECT_EQ(ranks.moves(rank, copy), is_torus ? 0 : chunks);
    }
    return;
  }
  const bool is_staged = GetParam().algorithm == "staged", is_alone = GetParam().algorithm == "alone";
  for (int rank = 0; rank < ranks.size(); ++rank) {
    EXPECT_EQ(ranks.moves(rank, What::to_host), is_staged ? 3 : 0);
    EXPECT_EQ(ranks.moves(rank, What::to_device), is_staged ? 3 : 0);
    EXPECT_EQ(ranks.moves(rank, What::inside), is_alone ? 1 : 0);
  }
}

TEST_P(DeviceConformance, even_shares_roots_and_joined_ranks_give_what_the_reference_gives) {
  for (int rank = 0; rank < ranks.size(); ++rank)
    for_every_verb([&](Verb verb) {
      Exercise what;
      what.count = 1000 + rank;
      what.segments = 4;
      what.root = rank;
      what.even_counts = true;
      if (verb == Verb::allreduce) what.joined = rank;
      return exercise(ranks, *algorithm, verb, what, 1);
    });
}

INSTANTIATE_TEST_SUITE_P(Every, DeviceConformance, ::testing::ValuesIn(device_cases()),
                         [](const auto& entry) { return entry.param.name(); });

}  // namespace
}  // namespace hvd
