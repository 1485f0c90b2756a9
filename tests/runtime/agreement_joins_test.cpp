// Votes of ranks that have joined. The vote of such a rank may arrive after the decision.
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "runtime/agreement/agreement.hpp"
#include "runtime/floats.hpp"

namespace hvd::runtime {
namespace {

using testing::floats;

// A node of a job whose messages and decisions the test can read.
class NodeAtHand final : public AgreementEffects {
 public:
  NodeAtHand(std::vector<Rank> ranks, int world_size, bool is_root, int children) {
    NodeAgreement::Settings settings;
    settings.ranks = std::move(ranks);
    settings.children = children;
    settings.child_above = [](Rank) { return 0; };
    settings.is_root = is_root;
    settings.world_size = world_size;
    settings.coordinator.slots = 16;
    settings.coordinator.cache_capacity = 8;
    settings.coordinator.fusion_threshold_bytes = 4000;
    settings.describe = [](Rank rank) { return "rank " + std::to_string(rank.value); };
    agreement = std::make_unique<NodeAgreement>(settings, *this);
  }
  void ask(int seat, const Request& request) {
    Buffer bytes;
    encode(request, bytes);
    agreement->request(Seat{seat}, bytes);
  }
  void vote(int seat, std::int64_t count, std::uint64_t seen) { ask(seat, OpRequest{"x", floats({count}), seen}); }

  void append(ConstBytes record) override {
    RecordStorage storage;
    auto decoded = decode_record(record, storage);
    if (std::holds_alternative<BatchRecord>(*decoded)) ++batches;
    if (std::holds_alternative<FailRecord>(*decoded)) ++failures;
    ++records;
  }
  void send(Neighbour, ConstBytes frame) override { sent.emplace_back(frame.begin(), frame.end()); }
  void given(SlotId) override {}
  void evicted(SlotId) override {}
  void scheduled(SlotId) override {}
  void ballot_received(OpNameView, Rank) override {}
  void stall_received(Rank, const StallRequest&) override {}
  void ack_received(Rank) override {}
  void lost(Rank, std::string_view) override {}
  std::vector<Rank> missing_at(SlotId) const override { return {}; }
  void answered(const std::vector<Missing>&) override {}

  std::unique_ptr<NodeAgreement> agreement;
  std::deque<Buffer> sent;
  int batches = 0, failures = 0;
  std::uint64_t records = 0;
};

TEST(Agreement, ignores_a_vote_about_what_was_decided_since_without_a_rank_that_has_joined) {
  NodeAtHand node({Rank{0}, Rank{1}}, 2, true, 0);
  node.ask(1, JoinRequest{false});
  node.agreement->flush(0);
  const std::uint64_t seen = node.records;
  node.vote(0, 1, seen);
  node.agreement->flush(0);
  EXPECT_EQ(node.batches, 1);
  node.vote(1, 1, seen);  // sent before rank 1 saw the batch that has its tensor
  node.agreement->flush(0);
  node.vote(0, 2, node.records);
  node.agreement->flush(0);
  EXPECT_EQ(node.batches, 2);
  EXPECT_EQ(node.failures, 0);
}

TEST(Agreement, schedules_what_is_ready_before_the_vote_of_a_rank_that_has_joined_ends_its_slot) {
  NodeAtHand node({Rank{0}, Rank{1}}, 2, true, 0);
  node.ask(1, JoinRequest{false});
  node.agreement->flush(0);
  node.vote(0, 1, node.records);      // ready, but not scheduled
  node.vote(1, 1, node.records + 9);  // another thread of rank 1 sends this vote
  node.agreement->flush(0);
  EXPECT_EQ(node.batches, 1);
  EXPECT_EQ(node.failures, 0);
}

TEST(Agreement, hears_several_votes_of_a_node_whose_ranks_have_all_joined) {
  NodeAtHand root({Rank{0}}, 3, true, 1), node({Rank{1}, Rank{2}}, 3, false, 0);
  auto exchange = [&] {
    node.agreement->flush(0);
    for (; !node.sent.empty(); node.sent.pop_front())
      EXPECT_TRUE(root.agreement->receive(Neighbour{0}, node.sent.front()));
    root.agreement->flush(0);
    for (; !root.sent.empty(); root.sent.pop_front())
      EXPECT_TRUE(node.agreement->receive(Neighbour::parent(), root.sent.front()));
  };
  for (int seat : {0, 1}) node.ask(seat, JoinRequest{false});
  exchange();
  for (int seat : {0, 1}) node.vote(seat, 1, node.records);
  exchange();
  EXPECT_EQ(root.batches, 0);  // rank 0 has not voted yet
  root.vote(0, 1, root.records);
  exchange();
  EXPECT_EQ(root.batches, 1);
  EXPECT_EQ(node.batches, 1);
  EXPECT_EQ(root.failures, 0);
}

}  // namespace
}  // namespace hvd::runtime
