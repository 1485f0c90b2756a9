// Random programs whose ranks are threads of this process, over links in the process.
//
// HVD_PROGRAM=<seed> plays and prints only that program. HVD_PROGRAMS=<first>:<count> plays `count` programs.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <optional>

#include "api/runtime_of_c.hpp"
#include "programs/player.hpp"
#include "ranks_as_threads.hpp"
#include "sanitized.hpp"

namespace hvd::programs {
namespace {

using Mix = Wanted::Mix;

constexpr auto patience = std::chrono::seconds(testing::is_sanitized ? 120 : 40);

Config config_of(const Program& program) {
  Config config;
  config.cache_capacity = program.cache_capacity;
  config.fusion_threshold_bytes = program.fusion_threshold;
  config.slab_chunk_bytes = program.chunk;
  config.disable_group_fusion = program.groups_do_not_mix;
  config.dynamic_process_sets = true;
  config.network_interfaces = "lo";
  return config;
}

std::vector<std::vector<Rank>> static_sets(const Program& program) {
  std::vector<std::vector<Rank>> sets;
  for (std::size_t set = 1; set < program.sets.size(); ++set)
    if (program.sets[set].is_static) {
      sets.emplace_back();
      for (int rank : program.sets[set].ranks) sets.back().emplace_back(rank);
    }
  return sets;
}

// Runs all ranks of a program, each in a thread. Returns the faults that were found; an empty text if there are none.
std::string play(const Program& program, const std::string& how_to_repeat) {
  testing::Ensemble ensemble(testing::made_up_world(program.nodes), config_of(program));
  std::vector<std::optional<connections::NetListener>> listeners(ensemble.world.members.size());
  if (program.nodes.size() > 1)
    for (int rank = 0; rank < program.ranks(); ++rank)
      listeners[static_cast<std::size_t>(rank)] = ensemble.take_listener(Rank{rank});
  Watch watch(how_to_repeat + "\n" + text_of(program), patience);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < program.ranks(); ++rank)
    ranks.emplace_back([&, rank] {
      runtime::Runtime::Parts parts;
      parts.world = ensemble.world;
      parts.world.rank = Rank{rank};
      parts.config = ensemble.config;
      parts.threads = ensemble.hub;
      parts.sets = static_sets(program);
      parts.net = std::exchange(listeners[static_cast<std::size_t>(rank)], std::nullopt);
      auto started = runtime::Runtime::start(std::move(parts), Deadline::after(patience));
      if (!started) return watch.found("rank " + std::to_string(rank) + " did not start: " + started.error().message);
      hvd_runtime runtime{std::move(*started)};
      Player(program, &runtime, rank, watch).play();
    });
  for (std::thread& rank : ranks) rank.join();
  std::string faults = watch.faults();
  return faults.empty() ? "" : faults + how_to_repeat + "\n" + text_of(program);
}

std::string repeat(const char* test, std::uint64_t seed) {
  return "HVD_PROGRAM=" + std::to_string(seed) + " test_programs --gtest_filter=" + test;
}

void play_seeds(const Wanted& wanted, const char* test, std::uint64_t first, std::uint64_t count) {
  if (const char* one = std::getenv("HVD_PROGRAM")) {
    first = std::strtoull(one, nullptr, 10);
    count = 1;
    std::fprintf(stderr, "%s", text_of(draw_program(first, wanted)).c_str());
  } else if (const char* some = std::getenv("HVD_PROGRAMS")) {
    char* end = nullptr;
    first = std::strtoull(some, &end, 10);
    count = std::strtoull(end + 1, nullptr, 10);
  }
  // Plays several programs at a time, because their ranks mostly wait for each other.
  std::atomic<std::uint64_t> next{first};
  std::vector<std::thread> players;
  for (int player = 0; player < 4; ++player)
    players.emplace_back([&] {
      for (std::uint64_t seed; !::testing::Test::HasFailure() && (seed = next++) < first + count;)
        EXPECT_EQ(play(draw_program(seed, wanted), repeat(test, seed)), "") << "seed " << seed;
    });
  for (std::thread& player : players) player.join();
}

constexpr std::uint64_t in_plain_run = testing::is_sanitized ? 30 : 300, soak = 10'000;

TEST(RandomPrograms, give_what_the_naive_model_gives_on_every_rank) {
  play_seeds({}, "RandomPrograms.give_what_the_naive_model_gives_on_every_rank", 1, in_plain_run);
}
TEST(RandomPrograms, never_deadlock_over_sets_that_overlap) {
  play_seeds({Mix::overlapping_sets}, "RandomPrograms.never_deadlock_over_sets_that_overlap", 1, in_plain_run / 3);
}
TEST(RandomPrograms, give_what_the_naive_model_gives_10000_times_slow) {
  play_seeds({}, "RandomPrograms.give_what_the_naive_model_gives_on_every_rank", 1000, soak);
}
TEST(RandomPrograms, never_deadlock_over_sets_that_overlap_1000_times_slow) {
  play_seeds({Mix::overlapping_sets}, "RandomPrograms.never_deadlock_over_sets_that_overlap", 1000, soak / 10);
}

}  // namespace
}  // namespace hvd::programs
