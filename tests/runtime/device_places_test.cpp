// Which device a rank uses and when; ranks that have none, or whose device lacks something.
#include <gtest/gtest.h>

#include <barrier>
#include <string>
#include <utility>
#include <vector>

#include "device_rig.hpp"

namespace hvd::runtime {
namespace {

using hvd::testing::made_up_world;
using namespace rigs;

// A device of the registry: made without a call of its library. Behind it is a late device.
class Closed final : public devices::Device {
 public:
  explicit Closed(std::shared_ptr<LateDevice> late, std::string why_not = "", ErrorCode code = ErrorCode::system)
      : Device(DeviceKind::cuda, -1), late_(std::move(late)), why_not_(std::move(why_not)), code_(code) {}

  Result<devices::Memory> allocate(std::size_t bytes, devices::Where where, Stream user) override {
    return opened().allocate(bytes, where, user);
  }
  Result<std::shared_ptr<void>> stream() override { return opened().stream(); }
  Status move(Stream stream, std::span<const devices::Move> moves, const devices::Treatment& treatment) override {
    return opened().move(stream, moves, treatment);
  }
  Result<Event> record(Stream stream) override { return opened().record(stream); }
  Status wait(Stream stream, Event event) override { return opened().wait(stream, event); }
  Result<bool> query(Event event, posix::WaitWord* wake) override { return opened().query(event, wake); }

  int times_opened = 0;

 private:
  Status open_library(int) override {
    if (!why_not_.empty()) return Error(code_, why_not_);
    ++times_opened;
    return {};
  }
  LateDevice& opened() {
    if (times_opened != 1) panic("a device is used that was not opened once");
    return *late_;
  }

  const std::shared_ptr<LateDevice> late_;
  const std::string why_not_;
  const ErrorCode code_;
};

topology::RankPlacement planned_on(int gpu) {
  topology::RankPlacement placement;
  placement.gpu = gpu;
  return placement;
}

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
}

std::string join(DeviceRig& rig) {
  std::int32_t last = -1;
  return rig.run({"join", Verb::join, {}, nullptr, &last, false, DeviceKind::host});
}

TEST(DeviceOfARank, is_opened_at_its_first_tensor_and_where_that_is) {
  Ensemble ensemble(made_up_world({2}));
  run_ranks(ensemble, [&](RankThread& thread) {
    std::shared_ptr<Closed> closed;
    DeviceRig rig(ensemble, thread, false, false, [&](Runtime::Parts& parts) {
      closed = std::make_shared<Closed>(std::static_pointer_cast<LateDevice>(parts.devices.front()));
      parts.devices = {closed};
      parts.placement = planned_on(1);
    });
    ASSERT_TRUE(rig.runtime);
    std::vector<float> host = part_of(thread.rank().value, 10);
    EXPECT_EQ(rig.run({"host", Verb::allreduce, {10}, host.data(), host.data(), false, DeviceKind::host}), "");
    EXPECT_EQ(closed->times_opened, 0) << "a program without tensors there needs no context";
    EXPECT_TRUE(rig.runtime->open_device(DeviceKind::cuda, 3, 0));
    EXPECT_EQ(closed->ordinal(), 3);
    for (int i = 0; i < 2; ++i) {
      devices::Memory data = rig.upload(part_of(thread.rank().value, 100));
      EXPECT_EQ(rig.run({"sum", Verb::allreduce, {100}, data.data(), data.data()}), "");
      EXPECT_EQ(rig.read(data.data(), 100), sum_of(2, 100));
      EXPECT_TRUE(rig.runtime->open_device(DeviceKind::cuda, 3, 0));
    }
    const Status second = rig.runtime->open_device(DeviceKind::cuda, 1, 0);
    ASSERT_FALSE(second);
    expect_words(second.error().message, {"cuda device 1", "cuda device 3"});
    EXPECT_EQ(closed->times_opened, 1);
    rig.runtime.reset();
    devices::finish(*rig.device, rig.stream);
  });
}

TEST(DeviceOfARank, whose_driver_is_too_old_is_an_error_of_the_system) {
  Ensemble ensemble(made_up_world({1}));
  run_ranks(ensemble, [&](RankThread& thread) {
    DeviceRig rig(ensemble, thread, false, false, [](Runtime::Parts& parts) {
      auto late = std::static_pointer_cast<LateDevice>(parts.devices.front());
      parts.devices = {std::make_shared<Closed>(std::move(late), "found 11.4, needed is 11.8", ErrorCode::unsupported)};
    });
    ASSERT_TRUE(rig.runtime);
    const Status refused = rig.runtime->open_device(DeviceKind::cuda, 0, 0);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::system) << "the tensor is right";
    expect_words(refused.error().message, {"needed is 11.8"});
    rig.runtime.reset();
  });
}

// Rank 0 joins, and the others reduce tensors in device memory.
void with_joined_rank(const std::function<void(Runtime::Parts&)>& change_of_rank_0,
                      const std::function<void(DeviceRig&, const std::string& error)>& end) {
  Ensemble ensemble(made_up_world({3}));
  run_ranks(ensemble, [&](RankThread& thread) {
    const int rank = thread.rank().value;
    DeviceRig rig(ensemble, thread, false, false, rank == 0 ? change_of_rank_0 : nullptr);
    ASSERT_TRUE(rig.runtime);
    std::string error;
    if (rank > 0) {
      devices::Memory data = rig.upload(part_of(rank, 200'000));
      error = rig.run({"a", Verb::allreduce, {200'000}, data.data(), data.data()});
      std::vector<float> expected = sum_of(3, 200'000), mine = part_of(0, 200'000);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] -= mine[i];
      if (error.empty()) {
        EXPECT_EQ(rig.read(data.data(), 200'000), expected);
      }
    }
    const std::string joined = join(rig);
    end(rig, error.empty() ? joined : error);
    rig.runtime.reset();
    devices::finish(*rig.device, rig.stream);
  });
}

TEST(DeviceOfARank, that_has_joined_is_the_planned_one) {
  std::shared_ptr<Closed> closed;
  with_joined_rank(
      [&](Runtime::Parts& parts) {
        closed = std::make_shared<Closed>(std::static_pointer_cast<LateDevice>(parts.devices.front()));
        parts.devices = {closed};
        parts.placement = planned_on(2);
      },
      [](DeviceRig&, const std::string& error) { EXPECT_EQ(error, ""); });
  EXPECT_EQ(closed->ordinal(), 2);
}

TEST(DeviceOfARank, is_not_needed_when_the_rank_has_joined) {
  with_joined_rank([](Runtime::Parts& parts) { parts.devices.clear(); },
                   [](DeviceRig&, const std::string& error) { EXPECT_EQ(error, ""); });
}

TEST(DeviceOfARank, that_has_joined_and_cannot_be_opened_is_named_everywhere) {
  with_joined_rank(
      [](Runtime::Parts& parts) {
        parts.devices = {std::make_shared<Closed>(nullptr, "another process has this GPU for itself")};
      },
      [](DeviceRig&, const std::string& error) {
        expect_words(error, {"rank 0", "another process has this GPU"});
      });
}

TEST(DeviceOfARank, is_refused_on_all_ranks_by_the_name_of_the_rank_that_lacks_the_plugin) {
  Ensemble ensemble(made_up_world({3}));
  for (int rank = 0; rank < 3; ++rank)
    ensemble.world.members[static_cast<std::size_t>(rank)].devices = connections::DeviceCard{
        *posix::CpuMask::parse("0-7"),
        {{"0000:01:00.0", "", ""}},
        rank == 1 ? std::vector<std::string>()
                  : std::vector<std::string>{"cuda"}}.encode();
  std::barrier all_did(3);
  run_ranks(ensemble, [&](RankThread& thread) {
    DeviceRig rig(ensemble, thread, false, false);
    ASSERT_TRUE(rig.runtime);
    auto set = rig.runtime->add_process_set({Rank{0}, Rank{2}});
    ASSERT_TRUE(set) << set.error().message;
    const Status refused = rig.runtime->open_device(DeviceKind::cuda, 0, 0);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
    expect_words(refused.error().message, {"cuda memory", "rank 1", "host memory on all ranks"});
    EXPECT_TRUE(rig.runtime->open_device(DeviceKind::cuda, 0, *set)) << "the set is without rank 1";
    all_did.arrive_and_wait();
  });
}

// ---- devices that lack something in the middle

TEST(DeviceOfARank, without_memory_to_stage_fails_everybody_by_name) {
  Ensemble ensemble(made_up_world({2}));
  with_devices(ensemble, false, [&](DeviceRig& rig, int rank) {
    devices::Memory data = rig.upload(part_of(rank, 1000));
    if (rank == 1) rig.device->run_out_after(0);
    const std::string text = rig.run({"sum", Verb::allreduce, {1000}, data.data(), data.data()});
    expect_words(text, {"rank 1", "no memory left"});
  });
}

TEST(DeviceOfARank, that_fails_while_batches_are_on_it_fails_everybody_by_name) {
  Ensemble ensemble(made_up_world({2}));
  std::barrier all_issued(2);
  with_devices(ensemble, true, [&](DeviceRig& rig, int rank) {
    devices::Memory data = rig.upload(part_of(rank, 100));
    rig.device->hold(rig.stream);
    auto handle = rig.start({{"issued", Verb::allreduce, {100}, data.data(), data.data()}});
    ASSERT_TRUE(handle);
    EXPECT_TRUE(rig.wait_until_done(*handle));
    all_issued.arrive_and_wait();
    if (rank == 1) rig.device->engine().fail("it has fallen off the bus");
    std::string later;
    devices::Memory more;
    for (int i = 0; i < 100'000 && later.empty(); ++i) {
      std::vector<float> host{1};
      later = rig.run({"later", Verb::allreduce, {1}, host.data(), host.data(), false, DeviceKind::host});
    }
    expect_words(later, {"rank 1", "fallen off the bus"});
    expect_words(rig.wait(*handle), {"not complete", "rank 1"});
    rig.runtime->release(rig.cell(*handle));
    rig.runtime.reset();
    if (rank == 0) rig.device->let_go(rig.stream);
  });
}

// ---- links that are made later

class Never final : public transport::Transport {
 public:
  static std::unique_ptr<transport::Transport> make(const transport::Surroundings&) {
    return std::make_unique<Never>();
  }
  const char* name() const override { return "never"; }
  bool reaches(const Group& group, DeviceKind kind) const override {
    return kind == DeviceKind::cuda && group.has_me();
  }
  Result<std::unique_ptr<transport::Connecting>> connect(const Group&, std::string_view,
                                                         transport::Exchange&) override {
    struct Forever final : transport::Connecting {
      Progress step() override { return Progress::pending; }
      std::unique_ptr<transport::Link> take() override { panic("it is never done"); }
      const Error& failure() const override { panic("it never fails"); }
    };
    return std::unique_ptr<transport::Connecting>(std::make_unique<Forever>());
  }
};

TEST(DeviceOfARank, whose_links_are_not_made_in_time_fails_by_the_name_of_the_link) {
  Ensemble ensemble(made_up_world({2}));
  ensemble.config.start_timeout_s = 0.1;
  run_ranks(ensemble, [&](RankThread& thread) {
    DeviceRig rig(ensemble, thread, false, false, [](Runtime::Parts& parts) {
      parts.transports = {{"never", &Never::make}};
    });
    ASSERT_TRUE(rig.runtime);
    devices::Memory data = rig.upload(part_of(thread.rank().value, 10));
    const std::string text = rig.run({"sum", Verb::allreduce, {10}, data.data(), data.data()});
    expect_words(text, {"'sum'", "link 'cuda devices'", "HOROVOD_START_TIMEOUT"});
    rig.runtime.reset();
    devices::finish(*rig.device, rig.stream);
  });
}

}  // namespace
}  // namespace hvd::runtime
