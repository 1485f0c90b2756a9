// Runs the real agreement over thousands of nodes in virtual time, and checks exactly what is sent and agreed.
#include <gtest/gtest.h>

#include "agreement_simulator/simulation.hpp"
#include "sanitized.hpp"

namespace hvd::simulation {
namespace {

constexpr int hosts = testing::is_sanitized ? 576 : 4608;
constexpr int links = hosts - 1;  // links of the tree of nodes

Settings large() {
  Settings settings;
  settings.hosts = hosts;
  settings.ranks_per_host = 6;
  settings.tensors = 2;
  settings.steps = 3;
  settings.spread = 50'000;
  return settings;
}

TEST(AgreementAtScale, is_one_message_up_and_one_down_per_node_in_steady_state) {
  Outcome outcome = simulate(large());
  ASSERT_EQ(outcome.steps.size(), 3u);
  EXPECT_TRUE(outcome.schedules_agree);
  EXPECT_GT(outcome.steps[0].messages, 2 * links);  // ballots, whose number of messages depends on their timing
  // For each child of the root: a vote for two names, a ballot and a slot for each, and their batch. None per rank.
  EXPECT_LT(outcome.steps[0].bytes_at_root, 8 * 1024);
  for (std::size_t number : {1u, 2u}) {
    const Step& step = outcome.steps[number];
    EXPECT_EQ(step.messages, 2 * links);
    EXPECT_EQ(step.messages_at_root, 2 * 8);
    EXPECT_EQ(step.batches, 1);
    EXPECT_EQ(step.failures, 0);
    // Each link carries up the position and two slots, and carries down a batch of two slots with its process set.
    EXPECT_EQ(step.bytes, links * (4 + 17 + 5 + 2 * 4 + 4 + 1 + 4 + 1 + 8 + 4 + 4 + 2 * 4));
    EXPECT_GT(step.latency, 0);
    EXPECT_LT(step.latency, 2'000'000);
  }
}

TEST(AgreementAtScale, is_the_same_every_time) {
  Settings settings = large();
  settings.hosts = 100;
  Outcome first = simulate(settings), second = simulate(settings);
  for (std::size_t step = 0; step < first.steps.size(); ++step) {
    EXPECT_EQ(first.steps[step].messages, second.steps[step].messages);
    EXPECT_EQ(first.steps[step].bytes, second.steps[step].bytes);
    EXPECT_EQ(first.steps[step].latency, second.steps[step].latency);
  }
}

TEST(AgreementAtScale, costs_a_central_coordinator_a_message_to_and_from_every_rank) {
  Settings settings = large();
  settings.is_central = true;
  settings.hosts = 512;
  Outcome central = simulate(settings);
  settings.is_central = false;
  Outcome tree = simulate(settings);
  EXPECT_TRUE(central.schedules_agree);
  EXPECT_EQ(central.steps[2].messages_at_root, 2 * (512 * 6 - 1));
  EXPECT_EQ(tree.steps[2].messages_at_root, 2 * 8);
  EXPECT_GT(central.steps[2].latency, 10 * tree.steps[2].latency);
}

TEST(AgreementAtScale, waits_for_a_straggler_without_another_message) {
  Settings settings = large();
  settings.straggler = Incident{2, hosts * 6 - 648};
  settings.straggler_delay = 500'000'000;
  Outcome outcome = simulate(settings);
  EXPECT_TRUE(outcome.schedules_agree);
  EXPECT_EQ(outcome.steps[2].messages, 2 * links);
  EXPECT_LE(outcome.steps[2].latency, outcome.steps[1].latency);  // all other ranks have sent their part long before
}

TEST(AgreementAtScale, fails_what_one_rank_disagrees_about_on_all_nodes_and_only_that) {
  Settings settings = large();
  settings.mismatch = Incident{1, 2000};
  Outcome outcome = simulate(settings);
  EXPECT_TRUE(outcome.schedules_agree);
  EXPECT_EQ(outcome.steps[1].failures, 1);
  EXPECT_EQ(outcome.steps[1].batches, 1);
  EXPECT_NE(outcome.message.find("rank 2000"), std::string::npos) << outcome.message;
  EXPECT_EQ(outcome.steps[2].failures, 0);
}

TEST(AgreementAtScale, tells_every_node_of_a_host_that_vanished) {
  for (int host : testing::is_sanitized ? std::vector{3} : std::vector{0, 3, 100, hosts - 1}) {
    Settings settings = large();
    settings.steps = 2;
    settings.lost_host = Incident{1, host * 6};
    Outcome outcome = simulate(settings);
    EXPECT_EQ(outcome.survivors_told, hosts - 1) << host;
    EXPECT_EQ(outcome.survivors_left, 0) << host;
    EXPECT_GE(outcome.told_after, settings.patience);
    EXPECT_LT(outcome.told_after, settings.patience + 1'000'000'000);
    EXPECT_NE(outcome.message.find("host n" + std::to_string(host) + ")"), std::string::npos) << outcome.message;
  }
}

}  // namespace
}  // namespace hvd::simulation
