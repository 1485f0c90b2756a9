// Elastic jobs that seeds draw: deaths in every phase, hosts that flap, that come back with other slots, that are cut
// off and return, processes that hang, spares. What must always hold is written where it is checked, as sentences
// (elastic_simulation.cpp).
#include "launcher/elastic_simulation.hpp"

#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <string>

namespace hvd::launcher::simulation {
namespace {

// Returns how often jobs ended in each way.
std::map<std::string, int> simulate_all(std::uint64_t from, std::uint64_t to) {
  std::map<std::string, int> endings;
  int refused = 0;
  for (std::uint64_t seed = from; seed < to; ++seed) {
    Outcome outcome = simulate(seed);
    ++endings[outcome.ending];
    refused += outcome.refused;
    if (outcome.broken_rules.empty()) continue;
    std::string history;
    for (const std::string& line : outcome.history) history += line + "\n";
    ADD_FAILURE() << "seed " << seed << ": " << outcome.broken_rules.front() << "\n" << history;
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_GT(refused, 0) << "no process that was taken for lost came back: the seeds show nothing about partitions";
  return endings;
}

TEST(SimulatedElasticJobs, keep_their_rules_with_200_seeds) {
  std::map<std::string, int> endings = simulate_all(0, 200);
  EXPECT_GE(endings.size(), 6u) << "the seeds show too few ways to end: " << ::testing::PrintToString(endings);
}

TEST(SimulatedElasticJobs, keep_their_rules_with_20000_seeds_soak) {
  std::map<std::string, int> endings = simulate_all(200, 20'200);
  std::cout << ::testing::PrintToString(endings) << "\n";
  EXPECT_EQ(endings.size(), 7u) << "each way to end";
}

}  // namespace
}  // namespace hvd::launcher::simulation
