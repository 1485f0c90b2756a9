// C programs whose tensors are in the memory of a late device. The ranks are threads of this process over every
// transport, or processes that horovodrun starts (OnDeviceInProcesses).
#include <gtest/gtest.h>

#include <numeric>
#include <ostream>

#include "api/runtime_of_c.hpp"
#include "fixtures/late_device/direct_transport.hpp"
#include "on_device/program.hpp"
#include "ranks_as_threads.hpp"

namespace hvd::on_device {
namespace {

using testing::Ensemble;
using testing::LateDevice;
using testing::RankThread;
using Act = std::string (*)(const Place&);

constexpr auto patience = std::chrono::seconds(60);
constexpr Act acts[] = {every_verb_gives_its_results,
                        the_stream_keeps_the_order,
                        callbacks_start_what_comes_next,
                        a_set_of_ranks_has_lanes_of_its_own,
                        wrong_uses_are_refused,
                        results_are_known_by_kind_and_ordinal,
                        disagreement_fails_everybody_and_harms_nothing};

// How the tensors travel, and the shape of the world.
struct Way {
  std::string name;
  std::vector<int> shape;
  bool is_direct = false, has_net = false;
  friend void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }
};

class OnDevice : public ::testing::TestWithParam<Way> {
 protected:
  // Plays the acts one after the other on every rank, with a runtime for all of them.
  static void play(std::span<const Act> acts_of_runtime) {
    Ensemble ensemble(testing::made_up_world(GetParam().shape));
    ensemble.config.network_interfaces = "lo";
    ensemble.config.dynamic_process_sets = true;
    run_ranks(ensemble, [&](RankThread& thread) {
      auto device = std::make_shared<LateDevice>(static_cast<std::uint64_t>(thread.rank().value) + 1);
      const auto stream = device->stream().value();
      runtime::Runtime::Parts parts;
      if (GetParam().has_net) parts.net = ensemble.take_listener(thread.rank());
      parts.world = ensemble.world;
      parts.world.rank = thread.rank();
      parts.config = ensemble.config;
      parts.config.nccl = "0";
      parts.threads = ensemble.hub;
      parts.devices = {device};
      if (GetParam().is_direct) parts.transports = {testing::direct_transport};
      auto started = runtime::Runtime::start(std::move(parts), Deadline::after(patience));
      ASSERT_TRUE(started) << started.error().message;
      hvd_runtime runtime{std::move(*started)};
      testing::Engine::Separate program(device->engine());
      const Place place{&runtime, device.get(), stream.get(), &program, thread.rank().value, ensemble.world.size()};
      for (std::size_t act = 0; act < acts_of_runtime.size(); ++act) {
        thread.note("act " + std::to_string(act));
        EXPECT_EQ(acts_of_runtime[act](place), "") << "act " << act << " on rank " << place.rank;
      }
      runtime.runtime.reset();
      devices::finish(*device, {stream.get()});
      EXPECT_EQ(device->allocations(), 0u) << "memory was not given back on rank " << place.rank;
    });
  }
};
INSTANTIATE_TEST_SUITE_P(of, OnDevice,
                         ::testing::Values(Way{"one_rank", {1}}, Way{"staged_over_shm", {3}}, Way{"direct", {3}, true},
                                           Way{"staged_over_tcp", {1, 1, 1}, false, true},
                                           Way{"staged_over_tcp_and_shm", {2, 2}, false, true}),
                         [](const auto& way) { return way.param.name; });

TEST_P(OnDevice, a_program_gets_right_results_in_order_and_errors_that_say_why) {
  play(acts);
}
TEST_P(OnDevice, a_failed_copy_fails_every_rank_and_its_callbacks) {
  if (GetParam().is_direct || GetParam().shape == std::vector{1}) GTEST_SKIP() << "nothing is copied";
  constexpr Act fails[] = {a_failed_copy_fails_everybody};
  play(fails);
}
TEST_P(OnDevice, a_stop_ends_operations_whose_input_is_not_there) {
  if (GetParam().is_direct) GTEST_SKIP() << "an issued operation is over for the host";
  constexpr Act stops[] = {a_stop_ends_what_waits_for_its_input};
  play(stops);
}

// Run by horovodrun. The runtime finds the device in the program's own registry.
class OnDeviceInProcesses : public ::testing::Test {
 protected:
  static void play(std::span<const Act> acts_of_runtime) {
    LateDevice& device = device_of_process();
    const auto stream = device.stream().value();
    testing::Engine::Separate program(device.engine());
    for (int life = 0; life < 2; ++life) {
      Place place;
      place.program = &program;
      ASSERT_EQ(hvd_init(&place.runtime), HVD_OK) << hvd_last_error();
      hvd_world world{};
      world.struct_size = sizeof world;
      ASSERT_EQ(hvd_get_world(place.runtime, &world), HVD_OK) << hvd_last_error();
      place.device = &device;
      place.stream = stream.get();
      place.rank = world.rank;
      place.size = world.size;
      for (Act act : acts_of_runtime) EXPECT_EQ(act(place), "") << "on rank " << place.rank;
      hvd_shutdown(place.runtime);
      devices::finish(device, {stream.get()});
      EXPECT_EQ(device.allocations(), 0u) << "memory was not given back on rank " << place.rank;
    }
  }
};

TEST_F(OnDeviceInProcesses, get_right_results_in_order_and_errors_that_say_why) {
  play(acts);
}
TEST_F(OnDeviceInProcesses, end_what_waits_for_its_input) {
  constexpr Act stops[] = {a_stop_ends_what_waits_for_its_input};
  play(stops);
}

}  // namespace
}  // namespace hvd::on_device
