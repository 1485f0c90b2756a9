#include "runtime/agreement/agreement.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "control/node_board.hpp"
#include "runtime/floats.hpp"
#include "sanitized.hpp"

namespace hvd::runtime {
namespace {

using control::NodeBoard;
using testing::floats;

constexpr int slots = 64;

std::shared_ptr<void> zeroed(std::size_t bytes) {
  void* memory = ::operator new (bytes, std::align_val_t{64});
  std::memset(memory, 0, bytes);
  return {memory, [](void* it) { ::operator delete (it, std::align_val_t{64}); }};
}

// The part of a rank's engine that deals with the agreement, over the real board of its node.
class RankModel {
 public:
  RankModel(std::unique_ptr<NodeBoard> board) : board_(std::move(board)) {}

  bool is_in_flight(const std::string& name) const { return names_.contains(name) && names_.at(name).in_flight; }
  bool is_idle() const { return in_flight_ == 0; }

  void submit(const std::string& name, std::int64_t count, bool transient) {
    Name& it = names_[name];
    it.in_flight = true;
    it.arrived = false;
    it.wanted = floats({count}, transient);
    ++in_flight_;
    introduce(name, it);
    board_->announce_arrivals();
  }

  // Reads one record. False if there is none.
  bool read() {
    ConstBytes bytes;
    if (!board_->read(bytes)) return false;
    RecordStorage storage;
    auto record = decode_record(bytes, storage);
    EXPECT_TRUE(record);
    execute(*record);
    board_->publish_position();
    return true;
  }

  NodeBoard& board() { return *board_; }
  std::vector<std::string> history;  // what was scheduled, failed or ended, in this order

 private:
  struct Name {
    bool in_flight = false, arrived = false;
    Signature wanted, of_slot;
    int slot = -1;
  };

  void introduce(const std::string& name, Name& it) {
    if (it.slot >= 0 && it.of_slot.shape == it.wanted.shape) {
      it.arrived = true;
      board_->arrive(SlotId{it.slot});
      return;
    }
    Buffer request;
    encode(Request(OpRequest{name, it.wanted}), request);
    EXPECT_TRUE(board_->send_request(request));
  }

  void execute(const Record& record) {
    if (const auto* give = std::get_if<GiveRecord>(&record)) {
      Name& it = names_.at(std::string(give->name.name));
      EXPECT_TRUE(it.in_flight);
      it.slot = give->slot.value;
      it.of_slot = it.wanted;
      name_of_[it.slot] = give->name.name;
      board_->open(give->slot, {});
    } else if (const auto* evict = std::get_if<EvictRecord>(&record)) {
      std::string name = name_of_.at(evict->slot.value);
      Name& it = names_.at(name);
      it.slot = -1;
      board_->close(evict->slot);
      if (!it.in_flight || !it.arrived) return;
      it.arrived = false;
      introduce(name, it);
    } else if (const auto* batch = std::get_if<BatchRecord>(&record)) {
      std::string line = "batch";
      for (SlotId slot : batch->slots) {
        std::string name = name_of_.at(slot.value);
        line += " " + name;
        Name& it = names_.at(name);
        EXPECT_TRUE(it.in_flight) << name;
        if (it.wanted.transient) {
          it.slot = -1;
          board_->close(slot);
        }
        settle(it);
      }
      history.push_back(line);
    } else if (const auto* fail = std::get_if<FailRecord>(&record)) {
      history.push_back("fail " + std::string(fail->name.name));
      settle(names_.at(std::string(fail->name.name)));
    } else if (const auto* end = std::get_if<ShutdownRecord>(&record)) {
      history.push_back("shutdown by " + std::to_string(end->by.value));
    }
  }

  void settle(Name& it) {
    it.in_flight = it.arrived = false;
    --in_flight_;
  }

  std::unique_ptr<NodeBoard> board_;
  std::map<std::string, Name> names_;
  std::map<int, std::string> name_of_;
  int in_flight_ = 0;
};

// The nodes of a job as a tree of `width`. Random numbers decide how long frames travel.
class Forest {
 public:
  Forest(std::vector<int> shape, int width, unsigned seed) : random_(seed) {
    int count = static_cast<int>(shape.size());
    for (int number = 0, first = 0; number < count; first += shape[static_cast<std::size_t>(number)], ++number)
      nodes_.push_back(
          std::make_unique<Node>(*this, number, shape[static_cast<std::size_t>(number)], first, width, count));
    for (auto& node : nodes_)
      for (auto& rank : node->ranks) ranks_.push_back(rank.get());
  }

  std::vector<RankModel*>& ranks() { return ranks_; }
  std::mt19937& random() { return random_; }
  NodeAgreement& agreement(int node) { return *nodes_[static_cast<std::size_t>(node)]->agreement; }
  std::vector<std::pair<int, std::string>> losses;  // a node that has learned of a loss, and the reason

  std::vector<std::string> answers;  // "slot or name: ranks that are missing"

  // Does one of the things that can happen. False if nothing can.
  bool happen() {
    std::vector<std::function<bool()>> actions;
    for (auto& node : nodes_) {
      actions.push_back([&] { return node->step(); });
      for (auto& rank : node->ranks) actions.push_back([&] { return rank->read(); });
    }
    std::shuffle(actions.begin(), actions.end(), random_);
    auto happens = [](auto& action) { return action(); };
    batches_may_run_ = true;
    if (std::any_of(actions.begin(), actions.end(), happens)) return true;
    batches_may_run_ = false;
    return std::any_of(actions.begin(), actions.end(), happens);
  }
  void settle() {
    while (happen()) {
    }
  }
  std::size_t bytes_up(int node) const { return nodes_[static_cast<std::size_t>(node)]->bytes_up; }
  std::uint64_t frames() const {
    std::uint64_t sum = 0;
    for (auto& node : nodes_) sum += node->agreement->frames_sent();
    return sum;
  }

 private:
  struct Node final : AgreementEffects {
    Node(Forest& owner, int its_number, int size, int first, int width, int count)
        : forest(owner), number(its_number), first_rank(first), tree_width(width) {
      NodeBoard::Shape shape{size, slots};
      auto memory = zeroed(NodeBoard::bytes_needed(shape));
      for (int seat = 0; seat < size; ++seat)
        ranks.push_back(std::make_unique<RankModel>(std::make_unique<NodeBoard>(memory, shape, Seat{seat})));
      NodeAgreement::Settings settings;
      settings.is_root = number == 0;
      for (int seat = 0; seat < size; ++seat) settings.ranks.push_back(Rank{first + seat});
      settings.children = std::clamp(count - 1 - number * width, 0, width);
      settings.coordinator.slots = slots;
      settings.coordinator.cache_capacity = 12;
      settings.coordinator.fusion_threshold_bytes = 4000;
      settings.describe = [](Rank rank) { return "rank " + std::to_string(rank.value); };
      agreement = std::make_unique<NodeAgreement>(settings, *this);
      arriving.resize(static_cast<std::size_t>(settings.children) + 1);
    }

    bool step() {
      NodeBoard& board = ranks.front()->board();
      bool news = false;
      agreement->node_has_read(board.records_read_by_all());
      Seat from;
      ConstBytes bytes;
      while (board.take_request(from, bytes)) {
        news = true;
        agreement->request(from, bytes);
      }
      SlotId slot;
      while (board.take_completed(slot)) {
        news = true;
        agreement->node_arrived(slot);
      }
      for (int child = -1; child + 1 < static_cast<int>(arriving.size()); ++child) {
        auto& queue = arriving[static_cast<std::size_t>(child + 1)];
        // Delivers some of the frames that are on their way.
        auto count = queue.empty() ? 0 : 1 + forest.random_() % queue.size();
        for (; count > 0; --count) {
          news = true;
          Buffer frame = std::move(queue.front());
          queue.pop_front();
          EXPECT_TRUE(agreement->receive(Neighbour{child}, frame));
        }
      }
      news |= agreement->flush(forest.batches_may_run_ ? static_cast<int>(forest.random_() % 2) : 0);
      return std::exchange(has_appended, false) || news;
    }

    void append(ConstBytes record) override {
      EXPECT_TRUE(ranks.front()->board().append(record));
      has_appended = true;
    }
    void send(Neighbour to, ConstBytes frame) override {
      int other = to.is_parent() ? (number - 1) / tree_width : number * tree_width + 1 + to.child;
      int my_place = to.is_parent() ? (number - 1) % tree_width : -1;
      if (to.is_parent()) bytes_up += frame.size();
      forest.nodes_[static_cast<std::size_t>(other)]->arriving[static_cast<std::size_t>(my_place + 1)].emplace_back(
          frame.begin(), frame.end());
    }
    void given(SlotId slot) override { ranks.front()->board().given(slot); }
    void evicted(SlotId slot) override { ranks.front()->board().evicted(slot); }
    void scheduled(SlotId slot) override { ranks.front()->board().scheduled(slot); }
    void ballot_received(OpNameView, Rank) override {}
    void stall_received(Rank, const StallRequest&) override {}
    void ack_received(Rank) override {}
    void lost(Rank rank, std::string_view why) override {
      forest.losses.emplace_back(number, std::to_string(rank.value) + " " + std::string(why));
    }

    std::vector<Rank> missing_at(SlotId slot) const override {
      std::vector<Rank> missing;
      for (Seat seat : ranks.front()->board().missing_at(slot)) missing.push_back(Rank{first_rank + seat.value});
      return missing;
    }
    void answered(const std::vector<Missing>& missing) override {
      for (const Missing& it : missing) {
        std::string line = (it.name.name.empty() ? std::to_string(it.slot.value) : it.name.name) + ":";
        std::vector<Rank> sorted = it.ranks;
        std::sort(sorted.begin(), sorted.end());
        for (Rank rank : sorted) line += " " + std::to_string(rank.value);
        forest.answers.push_back(line);
      }
    }

    Forest& forest;
    int number, first_rank, tree_width;
    std::size_t bytes_up = 0;
    bool has_appended = false;
    std::vector<std::unique_ptr<RankModel>> ranks;
    std::unique_ptr<NodeAgreement> agreement;
    std::vector<std::deque<Buffer>> arriving;  // frames from the parent and from each child
  };

  std::mt19937 random_;
  bool batches_may_run_ = false;  // if true, small ops wait for others while batches run
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<RankModel*> ranks_;
};

void everybody_has_the_same_history(Forest& forest) {
  for (RankModel* rank : forest.ranks()) {
    EXPECT_TRUE(rank->is_idle());
    EXPECT_EQ(rank->history, forest.ranks().front()->history);
  }
}

struct Shape {
  std::vector<int> nodes;
  int width;
};
class AgreementOf : public ::testing::TestWithParam<Shape> {};

void PrintTo(const Shape& shape, std::ostream* out) {
  *out << shape.nodes.size() << " nodes";
}

// Every rank submits the same names again and again in its own order. Sometimes an op has changed on all ranks, which
// notice it one after another. Sometimes an op is used only once.
TEST_P(AgreementOf, nodes_gives_all_ranks_one_schedule_whatever_comes_when) {
  for (unsigned seed = 0; seed < (testing::is_sanitized ? 8 : 40); ++seed) {
    Forest forest(GetParam().nodes, GetParam().width, seed);
    constexpr int names = 16, rounds = 12;
    std::vector<std::vector<std::pair<int, int>>> plans;  // by rank: (round, name); the next one is the last entry
    for (std::size_t rank = 0; rank < forest.ranks().size(); ++rank) {
      plans.emplace_back();
      for (int round = rounds - 1; round >= 0; --round) {
        std::vector<std::pair<int, int>> steps;
        for (int name = 0; name < names; ++name) steps.emplace_back(round, name);
        std::shuffle(steps.begin(), steps.end(), forest.random());
        plans.back().insert(plans.back().end(), steps.begin(), steps.end());
      }
    }
    auto submit_one = [&](std::size_t rank) {
      auto& plan = plans[rank];
      if (plan.empty()) return false;
      auto [round, number] = plan.back();
      bool transient = number % 5 == 4;
      std::string name = std::to_string(number) + (transient ? "." + std::to_string(round) : "");
      if (forest.ranks()[rank]->is_in_flight(name)) return false;
      plan.pop_back();
      // The count is equal on all ranks in a round. For some names it changes every fourth round.
      std::int64_t count = 10 + (number % 3 == 0 ? round / 4 : 0);
      forest.ranks()[rank]->submit(name, count, transient);
      return true;
    };
    bool more = true;
    while (more) {
      more = submit_one(forest.random()() % forest.ranks().size());
      for (unsigned i = forest.random()() % 4; i > 0; --i) more = forest.happen() || more;
      for (std::size_t rank = 0; !more && rank < plans.size(); ++rank) more = submit_one(rank);
      more = more || forest.happen();
    }
    forest.settle();
    everybody_has_the_same_history(forest);
    for (auto& plan : plans) ASSERT_TRUE(plan.empty()) << "seed " << seed;
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(shapes, AgreementOf,
                         ::testing::Values(Shape{{3}, 2}, Shape{{1, 1}, 2}, Shape{{2, 2}, 8}, Shape{{2, 1, 3}, 1},
                                           Shape{{1, 2, 1, 2, 1, 2, 1}, 2}));

TEST(Agreement, fails_on_all_ranks_what_ranks_of_different_nodes_disagree_about) {
  Forest forest({2, 2, 1}, 1, 7);
  for (std::size_t rank = 0; rank < forest.ranks().size(); ++rank)
    forest.ranks()[rank]->submit("a", rank == 4 ? 11 : 10, false);
  forest.settle();
  everybody_has_the_same_history(forest);
  EXPECT_EQ(forest.ranks().front()->history, std::vector<std::string>{"fail a"});
}

TEST(Agreement, fails_what_two_ranks_of_one_node_far_from_the_root_disagree_about) {
  Forest forest({1, 1, 2}, 1, 7);
  for (std::size_t rank = 0; rank < forest.ranks().size(); ++rank)
    forest.ranks()[rank]->submit("a", rank == 3 ? 11 : 10, false);
  forest.settle();
  everybody_has_the_same_history(forest);
  EXPECT_EQ(forest.ranks().front()->history, std::vector<std::string>{"fail a"});
}

TEST(Agreement, sends_at_most_two_frames_per_node_for_any_number_of_known_ops) {
  Forest forest({2, 2, 2, 2}, 2, 3);
  auto step = [&] {
    for (RankModel* rank : forest.ranks())
      for (int name = 0; name < 12; ++name) rank->submit(std::to_string(name), 1, false);
    forest.settle();
  };
  step();
  std::uint64_t before = forest.frames();
  step();
  // Three links with one frame in each direction.
  EXPECT_EQ(forest.frames() - before, 6);
  before = forest.frames();
  forest.settle();
  EXPECT_EQ(forest.frames(), before);
}

TEST(Agreement, tells_every_node_once_who_is_lost) {
  Forest forest({1, 1, 1, 1, 1, 1}, 2, 5);
  forest.agreement(4).announce_loss(Rank{4}, "power cut");
  forest.settle();
  std::vector<int> heard;
  for (auto& [node, why] : forest.losses) {
    heard.push_back(node);
    EXPECT_EQ(why, "4 power cut");
  }
  std::sort(heard.begin(), heard.end());
  EXPECT_EQ(heard, (std::vector<int>{0, 1, 2, 3, 5}));
}

TEST(Agreement, finds_out_on_all_nodes_who_is_missing) {
  Forest forest({2, 1, 2, 1, 1}, 2, 9);
  for (RankModel* rank : forest.ranks()) rank->submit("a", 1, false);
  forest.settle();
  for (std::size_t rank = 0; rank < forest.ranks().size(); ++rank)
    if (rank != 1 && rank != 4 && rank != 6) forest.ranks()[rank]->submit("a", 1, false);
  forest.settle();
  int slot = -1;
  forest.agreement(0).coordinator()->visit_slots([&](SlotId found, const OpName&) { slot = found.value; });
  forest.agreement(0).ask_who_is_missing({SlotId{slot}});
  forest.settle();
  // Rank 2 is alone on its node and has arrived. Therefore nobody is missing on this node.
  EXPECT_EQ(forest.answers.size(), 1u);
  EXPECT_NE(forest.answers.front().find(" 1"), std::string::npos) << forest.answers.front();
  EXPECT_NE(forest.answers.front().find(" 4"), std::string::npos) << forest.answers.front();
  EXPECT_NE(forest.answers.front().find(" 6"), std::string::npos) << forest.answers.front();
  EXPECT_EQ(forest.answers.front().find(" 0"), std::string::npos) << forest.answers.front();
  EXPECT_TRUE(forest.agreement(0).silent_children().empty());
}

TEST(Agreement, finds_out_who_has_not_voted_for_a_new_name_on_all_nodes) {
  Forest forest({2, 1, 2, 1, 1}, 2, 11);
  for (std::size_t rank = 0; rank < forest.ranks().size(); ++rank)
    if (rank != 0 && rank != 4 && rank != 5) forest.ranks()[rank]->submit("a", 1, false);
  forest.settle();
  forest.agreement(0).ask_who_is_missing({});
  forest.settle();
  EXPECT_EQ(forest.answers, std::vector<std::string>{"a: 0 4 5"});
  for (int rank : {0, 4, 5}) forest.ranks()[static_cast<std::size_t>(rank)]->submit("a", 1, false);
  forest.settle();
  everybody_has_the_same_history(forest);
}

TEST(Agreement, carries_one_ballot_per_subtree_and_name) {
  Forest forest({4, 4, 4}, 1, 13);  // width 1: the nodes form a chain
  for (RankModel* rank : forest.ranks()) rank->submit("a", 1, false);
  forest.settle();
  everybody_has_the_same_history(forest);
  Buffer request;
  encode(Request(OpRequest{"a", floats({1})}), request);
  EXPECT_LT(forest.bytes_up(1), 2 * request.size() + 60);  // less than two requests for eight ranks
}

TEST(Agreement, refuses_frames_that_are_broken) {
  Forest forest({1, 1}, 2, 5);
  for (const char* text :
       {"\x0f", "\x00", "\x01\xff\xff\xff\xff", "\x02\x09zz", "\x03zzzzzzzzz", "\x04\x00", "\x05\x09zzzzzzzzz"})
    EXPECT_FALSE(forest.agreement(0).receive(Neighbour{0}, as_bytes(std::string_view(text, 1 + std::strlen(text + 1)))))
        << text;

  // An op travels as a ballot with the opinions of a whole subtree. A request of a single rank is refused.
  Buffer request, frame;
  encode(Request(OpRequest{"a", floats({1})}), request);
  ByteWriter writer(frame);
  writer.put(std::uint8_t{4});
  writer.put(Rank{1});
  writer.put_string({reinterpret_cast<const char*>(request.data()), request.size()});
  EXPECT_FALSE(forest.agreement(0).receive(Neighbour{0}, frame));
}

}  // namespace
}  // namespace hvd::runtime
