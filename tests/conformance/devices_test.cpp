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
#include "devices/of_rank/devices.hpp"
#include "exercise.hpp"
#include "fixtures/late_device/direct_transport.hpp"
#include "fixtures/late_device/late_device.hpp"

namespace hvd {
namespace {

using testing::Exercise;
using testing::exercise;
using testing::is_sanitized;
using testing::LateDevice;
using testing::Part;
using testing::RanksInTurn;
using testing::RankThread;

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

class OnDevices final : public testing::Performers {
 public:
  OnDevices(const std::vector<int>& shape, const std::string& transport, bool direct)
      : ranks_(testing::made_up_world(shape), {transport, "inproc"}, 11, {},
               [&](RankThread& rank) { rank.surroundings.offer(devices_for(rank)); }) {
    for (std::size_t rank = 0; rank < devices_.size(); ++rank) {
      streams_.push_back(devices_[rank]->stream().value());
      teams_.push_back(std::make_unique<collectives::Team>());
      collectives::Team& team = *teams_.back();
      team.group = ranks_.team(static_cast<int>(rank)).group;
      team.selector = ranks_.selector.get();
      team.device = devices_[rank].get();
      team.host = &ranks_.team(static_cast<int>(rank));
      if (!direct) continue;
      transports_.push_back(testing::make_direct(threads_[rank]->surroundings));
      links_.push_back((*transports_.back()->connect(team.group, "devices", threads_[rank]->exchange))->take());
      team.link = links_.back().get();
    }
  }
  bool is_connected() const { return ranks_.is_connected(); }

  int size() const override { return ranks_.size(); }
  bool is_here(int) const override { return true; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  collectives::Team& team() override { return *teams_.front(); }
  Tasks plan(const collectives::Algorithm& algorithm, const Collective& collective) override {
    Tasks tasks;
    for (std::size_t rank = 0; rank < teams_.size(); ++rank) {
      Collective of_rank = collective;
      of_rank.stream = {streams_[rank].get()};
      tasks.push_back(algorithm.plan(of_rank, *teams_[rank]));
    }
    return tasks;
  }
  Progress run(Tasks& tasks, const std::vector<Part>& parts) override {
    std::vector<std::unique_ptr<Mirror>> mirrors;
    sequence_ += 1 << 20;
    for (std::size_t rank = 0; rank < tasks.size(); ++rank) {
      mirrors.push_back(std::make_unique<Mirror>(*devices_[rank], Stream{streams_[rank].get()}, parts[rank]));
      testing::restart(*tasks[rank], mirrors[rank]->part(), Sequence{sequence_});
    }
    Progress outcome = step_until_issued(tasks);
    for (std::size_t rank = 0; rank < tasks.size(); ++rank) {
      EXPECT_TRUE(devices_[rank]->wait({streams_[rank].get()}, tasks[rank]->event()));
      mirrors[rank]->download();
    }
    return outcome;
  }
  void abort() override { ranks_.abort(); }

  // Counts the calls that have moved data in this way.
  std::ptrdiff_t moves(int rank, LateDevice::Entry::What what) const {
    return std::ranges::count_if(devices_[static_cast<std::size_t>(rank)]->log(), [&](const LateDevice::Entry& entry) {
      return entry.when == LateDevice::Entry::When::queued && entry.what == what;
    });
  }

 private:
  // Steps the tasks until all are issued. Between the steps the devices' threads may use the processor.
  Progress step_until_issued(Tasks& tasks) {
    Progress outcome = Progress::done;
    std::vector<bool> is_over(tasks.size());
    while (std::ranges::find(is_over, false) != is_over.end()) {
      for (std::size_t rank = 0; rank < tasks.size(); ++rank) {
        if (is_over[rank]) continue;
        Progress progress = tasks[rank]->step();
        is_over[rank] = progress != Progress::pending;
        if (progress != Progress::failed) continue;
        outcome = progress;
        ranks_.abort(static_cast<int>(rank), tasks[rank]->failure());
      }
      std::this_thread::yield();
    }
    return outcome;
  }
  std::shared_ptr<devices::Devices> devices_for(RankThread& rank) {
    threads_.push_back(&rank);
    devices_.push_back(std::make_shared<LateDevice>(devices_.size() + 1, 3));
    std::shared_ptr<devices::Device> mine = devices_.back();
    return std::make_shared<devices::Devices>(std::span(&mine, 1));
  }

  std::vector<RankThread*> threads_;
  std::vector<std::shared_ptr<LateDevice>> devices_;
  RanksInTurn ranks_;
  std::vector<std::shared_ptr<void>> streams_;
  std::vector<std::unique_ptr<transport::Transport>> transports_;
  std::vector<std::unique_ptr<transport::Link>> links_;
  std::vector<std::unique_ptr<collectives::Team>> teams_;
  std::uint64_t sequence_ = 0;
};

struct DeviceCase {
  std::string algorithm, transport;
  std::vector<int> shape;

  std::string name() const {
    std::string text = algorithm + "_" + transport;
    for (int ranks : shape) text += "_" + std::to_string(ranks);
    return text;
  }
  friend void PrintTo(const DeviceCase& entry, std::ostream* out) { *out << entry.name(); }
};

std::vector<DeviceCase> device_cases() {
  std::vector<DeviceCase> list{{"alone", "inproc", {1}}, {"native", "inproc", {2}}, {"native", "inproc", {2, 1}}};
  const std::vector<std::string> transports{"inproc", "shm", "tcp"};
  const std::vector<std::vector<int>> shapes{{2}, {3}, {2, 2}};
  for (std::size_t transport = 0; transport < transports.size(); ++transport)
    for (std::size_t shape = 0; shape < shapes.size(); ++shape)
      if (!is_sanitized || transport == shape) list.push_back({"staged", transports[transport], shapes[shape]});
  return list;
}

class DeviceConformance : public ::testing::TestWithParam<DeviceCase> {
 protected:
  DeviceConformance() : ranks(GetParam().shape, GetParam().transport, GetParam().algorithm == "native") {
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
    EXPECT_GE(exercised, 4) << "next to nothing was tested";
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
    return exercise(ranks, *algorithm, verb, what, 2);
  });
}

TEST_P(DeviceConformance, one_call_moves_a_chunk_of_many_tensors_in_each_direction) {
  using What = LateDevice::Entry::What;
  Exercise what;
  what.count = 300'000;  // three chunks of 512 KB
  what.segments = 200;
  what.postscale = 0.5;
  ASSERT_TRUE(exercise(ranks, *algorithm, Verb::allreduce, what, 1));
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
