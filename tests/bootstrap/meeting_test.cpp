#include "bootstrap/meeting/meeting.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "native/posix/machine/host_identity.hpp"

namespace hvd::bootstrap {
namespace {

// A job as one rank sees it. The test provides the cards of the other ranks.
class MadeUpJob final : public Bootstrap {
 public:
  const char* name() const override { return "made up"; }
  bool detected(const Environment&) const override { return true; }
  Result<Identity> join(const Environment&, const Config&) override { return Identity{}; }
  Status put(std::string_view key, ConstBytes value) override {
    own_key = key;
    own = Buffer(value.begin(), value.end());
    return {};
  }
  Result<Buffer> get(Rank from, std::string_view key, Deadline) override {
    if (!fenced) return Error(ErrorCode::invalid_argument, "get before the fence");
    if (absent.contains(from.value)) return Error(ErrorCode::timeout, "nothing was put");
    if (key != own_key) return Error(ErrorCode::invalid_argument, "another key");
    return cards.at(static_cast<std::size_t>(from.value));
  }
  Status fence(Deadline) override {
    ++fences;
    fenced = !own.empty();
    return fence_result;
  }
  void abort(std::string_view) noexcept override {}

  std::vector<Buffer> cards;
  std::set<int> absent;
  std::string own_key;
  Buffer own;
  int fences = 0;
  bool fenced = false;
  Status fence_result;
};

Member member(int rank) {
  Member made{"host" + std::to_string(rank / 2), "node" + std::to_string(rank / 2), 1000 + rank,
              "@" + std::to_string(rank),
              "10.0.0." + std::to_string(rank + 1) + ":4000 [fd00::" + std::to_string(rank + 1) + "]:4001"};
  if (rank % 2 == 1) made.devices = "devices of rank " + std::to_string(rank);
  return made;
}

Deadline in_five_seconds() {
  return Deadline::after(std::chrono::seconds(5));
}

// Returns the card that a rank would put.
Buffer card_of(const Member& who, std::uint32_t epoch = 0) {
  MadeUpJob job;
  job.fence_result = Error(ErrorCode::peer_lost, "only the card is wanted");
  EXPECT_FALSE(meet(job, {Rank{0}, 2, "job"}, epoch, who, in_five_seconds()));
  return job.own;
}

TEST(Meeting, tells_every_rank_who_the_others_are) {
  constexpr int size = 5;
  for (int me = 0; me < size; ++me) {
    MadeUpJob job;
    for (int rank = 0; rank < size; ++rank) job.cards.push_back(card_of(member(rank)));
    auto world = meet(job, {Rank{me}, size, "job 7"}, 3, member(me), in_five_seconds());
    ASSERT_TRUE(world) << world.error().message;
    EXPECT_EQ(world->rank, Rank{me});
    EXPECT_EQ(world->epoch, 3u);
    EXPECT_EQ(world->job, "job 7");
    ASSERT_EQ(world->size(), size);
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(world->member(Rank{rank}).host, member(rank).host);
      EXPECT_EQ(world->member(Rank{rank}).node, member(rank).node);
      EXPECT_EQ(world->member(Rank{rank}).pid, member(rank).pid);
      EXPECT_EQ(world->member(Rank{rank}).address, member(rank).address);
      EXPECT_EQ(world->member(Rank{rank}).endpoints, member(rank).endpoints);
      EXPECT_EQ(world->member(Rank{rank}).devices, member(rank).devices);
    }
    EXPECT_EQ(job.fences, 1);
  }
}

TEST(Meeting, uses_another_key_in_every_epoch) {
  std::vector<std::string> keys;
  for (std::uint32_t epoch : {0u, 1u, 11u}) {
    MadeUpJob job;
    job.cards.assign(2, card_of(member(1)));
    ASSERT_TRUE(meet(job, {Rank{0}, 2, "job"}, epoch, member(0), in_five_seconds()));
    keys.push_back(job.own_key);
  }
  EXPECT_NE(keys[0], keys[1]);
  EXPECT_NE(keys[1], keys[2]);
}

TEST(Meeting, needs_nobody_for_a_single_rank) {
  MadeUpJob job;
  auto world = meet(job, {Rank{0}, 1, "job"}, 0, member(0), in_five_seconds());
  ASSERT_TRUE(world);
  EXPECT_EQ(world->size(), 1);
  EXPECT_EQ(job.fences, 0);
  EXPECT_TRUE(job.own.empty());
}

TEST(Meeting, names_the_rank_of_another_version) {
  MadeUpJob job;
  for (int rank = 0; rank < 3; ++rank) job.cards.push_back(card_of(member(rank)));
  std::uint32_t other = protocol_version + 41;
  std::memcpy(job.cards[2].data() + 8, &other, sizeof other);  // after the length of the first text and the mark
  auto world = meet(job, {Rank{1}, 3, "job"}, 0, member(1), in_five_seconds());
  ASSERT_FALSE(world);
  EXPECT_EQ(world.error().code, ErrorCode::mismatch);
  for (const std::string& part :
       {std::string("rank 2"), std::to_string(other), std::string("rank 1"), std::to_string(protocol_version)})
    EXPECT_NE(world.error().message.find(part), std::string::npos) << part << " in " << world.error().message;
  // A card's layout after the version number depends on the version. Therefore any bytes may follow an unknown version.
  job.cards[2].resize(12);
  EXPECT_EQ(meet(job, {Rank{1}, 3, "job"}, 0, member(1), in_five_seconds()).error().message, world.error().message);
}

// Checks that the first of two ranks refuses to work with the second, and that the message contains `part`.
void expect_mismatch(const Member& here, const Member& there, const std::string& part) {
  MadeUpJob job;
  job.cards = {card_of(here), card_of(there)};
  auto world = meet(job, {Rank{0}, 2, "job"}, 0, here, in_five_seconds());
  ASSERT_FALSE(world);
  EXPECT_EQ(world.error().code, ErrorCode::mismatch);
  EXPECT_NE(world.error().message.find(part), std::string::npos) << world.error().message;
}

TEST(Meeting, names_the_knob_in_which_a_rank_differs) {
  Member here = member(0), there = member(1);
  here.knobs = "HOROVOD_CACHE_CAPACITY=1024\nHOROVOD_ALGORITHM=\n";
  there.knobs = "HOROVOD_CACHE_CAPACITY=1024\nHOROVOD_ALGORITHM=allreduce=ring\n";
  expect_mismatch(here, there,
                  "has HOROVOD_ALGORITHM=, rank 1 (host " + there.host + ") has HOROVOD_ALGORITHM=allreduce=ring");
}

TEST(Meeting, names_the_rank_of_another_release) {
  Member here = member(0), there = member(1);
  here.release = "1.0.0";
  there.release = "1.0.9";
  expect_mismatch(here, there,
                  " has loaded Horovod 1.0.0, rank 1 (host " + there.host + ") has loaded Horovod 1.0.9: ");
}

TEST(Meeting, refuses_damaged_cards) {
  Buffer good = card_of(member(1));
  for (std::size_t length = 0; length < good.size(); ++length) {
    MadeUpJob job;
    job.cards.assign(2, Buffer(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length)));
    auto world = meet(job, {Rank{0}, 2, "job"}, 0, member(0), in_five_seconds());
    ASSERT_FALSE(world) << length;
    EXPECT_NE(world.error().message.find("rank 1"), std::string::npos) << world.error().message;
  }
  MadeUpJob job;
  good.push_back(std::byte{0});
  job.cards.assign(2, good);
  EXPECT_FALSE(meet(job, {Rank{0}, 2, "job"}, 0, member(0), in_five_seconds()));
}

TEST(Meeting, hands_on_what_the_bootstrap_says) {
  MadeUpJob job;
  job.fence_result = Error(ErrorCode::peer_lost, "rank 1 ended");
  auto world = meet(job, {Rank{0}, 2, "job"}, 0, member(0), in_five_seconds());
  ASSERT_FALSE(world);
  EXPECT_EQ(world.error().message, "rank 1 ended");
}

TEST(Meeting, names_who_did_not_come_in_time) {
  MadeUpJob job;
  job.fence_result = Error(ErrorCode::timeout, "too late");
  for (int rank = 0; rank < 5; ++rank) job.cards.push_back(card_of(member(rank)));
  job.absent = {1, 4};
  auto world = meet(job, {Rank{0}, 5, "job"}, 0, member(0), in_five_seconds());
  ASSERT_FALSE(world);
  EXPECT_EQ(world.error().code, ErrorCode::timeout);
  EXPECT_NE(world.error().message.find("Of 5 ranks these did not come to the meeting by made up: 1, 4. "),
            std::string::npos)
      << world.error().message;
}

TEST(Meeting, accuses_nobody_if_the_launcher_itself_does_not_answer) {
  MadeUpJob job;
  job.fence_result = Error(ErrorCode::timeout, "too late");
  job.absent = {0, 1, 2, 3, 4};
  auto world = meet(job, {Rank{0}, 5, "job"}, 0, member(0), in_five_seconds());
  ASSERT_FALSE(world);
  EXPECT_EQ(world.error().message, "too late");
}

Environment with_host_name(std::string name) {
  Environment environment;
  environment.set("HOROVOD_HOSTNAME", std::move(name));
  return environment;
}

TEST(Meeting, introduces_this_process) {
  Member me = introduce_myself(Environment(), "@1");
  EXPECT_EQ(me.host, posix::host_name());
  EXPECT_EQ(me.pid, ::getpid());
  EXPECT_EQ(me.address, "@1");
  EXPECT_EQ(me.node, posix::node_id());
  EXPECT_FALSE(me.node.empty());
  Member renamed = introduce_myself(with_host_name("login7"), "@1");
  EXPECT_EQ(renamed.host, "login7");
  EXPECT_EQ(renamed.node, me.node) << "a name given by the user says nothing about whose memory can be mapped";
  EXPECT_EQ(introduce_myself(with_host_name(""), "").host, posix::host_name());
}

}  // namespace
}  // namespace hvd::bootstrap
