// The PMI-1 server inside the process: requests of an MPI library and the answers to them, over a made-up bootstrap.
#include "bootstrap/pmi_bridge/bridge.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <vector>

namespace hvd::bootstrap {
namespace {

// ---- which ranks share a node ----

TEST(ProcessMapping, tells_every_placement_in_as_few_blocks_as_it_takes) {
  const struct {
    std::vector<int> node_of;
    const char* expected;
  } cases[] = {
      {{0}, "(vector,(0,1,1))"},
      {{0, 0, 0, 0}, "(vector,(0,1,4))"},
      {{0, 1}, "(vector,(0,2,1))"},
      {{0, 0, 1, 1}, "(vector,(0,2,2))"},
      {{0, 1, 0, 1}, "(vector,(0,2,1),(0,2,1))"},
      {{0, 0, 1}, "(vector,(0,1,2),(1,1,1))"},
      {{0, 1, 1}, "(vector,(0,1,1),(1,1,2))"},
      {{0, 1, 0}, "(vector,(0,2,1),(0,1,1))"},
      {{0, 0, 1, 1, 2, 0, 3}, "(vector,(0,2,2),(2,1,1),(0,1,1),(3,1,1))"},
  };
  for (const auto& it : cases) EXPECT_EQ(process_mapping(it.node_of, 860), it.expected);
}

TEST(ProcessMapping, is_left_out_where_a_client_could_not_bear_its_length) {
  std::vector<int> zigzag;
  for (int rank = 0; rank < 400; ++rank) zigzag.push_back(rank % 7 == 3 ? 0 : rank % 5);
  EXPECT_FALSE(process_mapping(zigzag, 860).has_value());
  // If the whole list is too long, a pattern that repeats is told only once.
  std::vector<int> round;
  for (int rank = 0; rank < 4000; ++rank) round.push_back(rank % 4);
  EXPECT_EQ(process_mapping(round, 860), "(vector,(0,4,1))");
}

// ---- values ----

using Values = std::map<std::pair<int, std::string>, Buffer>;

class MadeUp final : public Bootstrap {
 public:
  MadeUp(Values& store, int rank) : store_(store), rank_(rank) {}
  const char* name() const override { return "made-up"; }
  bool detected(const Environment&) const override { return true; }
  Result<Identity> join(const Environment&, const Config&) override { return Identity{Rank{rank_}, 3, "job"}; }
  Status put(std::string_view key, ConstBytes value) override {
    EXPECT_FALSE(value.empty()) << "some servers keep no value without bytes";
    bool is_new = store_.try_emplace({rank_, std::string(key)}, value.begin(), value.end()).second;
    EXPECT_TRUE(is_new) << key << " was put twice";
    return {};
  }
  Result<Buffer> get(Rank from, std::string_view key, Deadline) override {
    ++gets;
    auto found = store_.find({from.value, std::string(key)});
    if (found != store_.end()) return found->second;
    return Error(ErrorCode::timeout, "no such value");
  }
  Status fence(Deadline) override {
    if (refuses) return Error(ErrorCode::timeout, "somebody is missing");
    return {};
  }
  void abort(std::string_view reason) noexcept override { aborted = reason; }

  int gets = 0;
  bool refuses = false;
  std::string aborted;

 private:
  Values& store_;
  int rank_;
};

class Bridge : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int rank = 0; rank < 3; ++rank) {
      bootstraps.push_back(std::make_unique<MadeUp>(store, rank));
      auto opened = PmiBridge::open(*bootstraps.back(), {Rank{rank}, 3, "job"}, "kvs_horovod", {"a", "b", "a"},
                                    std::chrono::milliseconds(1000));
      ASSERT_TRUE(opened) << opened.error().message;
      bridges.push_back(std::move(*opened));
    }
  }
  void TearDown() override {
    for (auto& bridge : bridges) ::close(bridge->descriptor());
  }
  void put(std::size_t rank, const std::string& key, const std::string& value) {
    EXPECT_EQ(bridges[rank]->answer("cmd=put kvsname=kvs_horovod key=" + key + " value=" + value),
              "cmd=put_result rc=0 msg=success");
  }
  void barrier() {
    for (auto& bridge : bridges) EXPECT_EQ(bridge->answer("cmd=barrier_in"), "cmd=barrier_out rc=0");
  }
  std::string get(std::size_t rank, const std::string& key) {
    return bridges[rank]->answer("cmd=get kvsname=kvs_horovod key=" + key);
  }

  Values store;
  std::vector<std::unique_ptr<MadeUp>> bootstraps;
  std::vector<std::unique_ptr<PmiBridge>> bridges;
};

TEST_F(Bridge, answers_what_a_library_asks_at_its_start_and_end) {
  PmiBridge& bridge = *bridges[1];
  EXPECT_EQ(bridge.answer("cmd=init pmi_version=1 pmi_subversion=1"),
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
  EXPECT_EQ(bridge.answer("cmd=get_maxes"), "cmd=maxes kvsname_max=64 keylen_max=64 vallen_max=1024");
  EXPECT_EQ(bridge.answer("cmd=get_appnum"), "cmd=appnum appnum=0");
  EXPECT_EQ(bridge.answer("cmd=get_universe_size"), "cmd=universe_size size=3");
  EXPECT_EQ(get(1, "PMI_process_mapping"), "cmd=get_result rc=0 msg=success value=(vector,(0,2,1),(0,1,1))");
  EXPECT_EQ(bridge.answer("cmd=finalize"), "cmd=finalize_ack");
}

TEST_F(Bridge, carries_values_over_barriers_with_all_that_is_in_them) {
  put(0, "-bcast-1-0", "a=b c");
  put(2, "-allgather-shm-1-2-seg-1/2", "first");
  EXPECT_EQ(get(0, "-bcast-1-0"), "cmd=get_result rc=0 msg=success value=a=b c") << "one's own is there at once";
  barrier();
  EXPECT_EQ(get(1, "-bcast-1-0"), "cmd=get_result rc=0 msg=success value=a=b c");
  put(1, "key of no rank", "whose");
  barrier();
  EXPECT_EQ(get(0, "-allgather-shm-1-2-seg-1/2"), "cmd=get_result rc=0 msg=success value=first");
  put(1, "later", "second");
  barrier();
  EXPECT_EQ(get(2, "later"), "cmd=get_result rc=0 msg=success value=second");
}

TEST_F(Bridge, asks_the_rank_that_a_key_ends_with_and_asks_once) {
  put(2, "card-2", "x");
  put(2, "other-2", "y");
  barrier();
  EXPECT_EQ(get(0, "card-2"), "cmd=get_result rc=0 msg=success value=x");
  EXPECT_EQ(get(0, "other-2"), "cmd=get_result rc=0 msg=success value=y");
  EXPECT_EQ(bootstraps[0]->gets, 1);
}

TEST_F(Bridge, says_that_it_does_not_know_and_asks_nobody_about_the_servers_own_keys) {
  barrier();
  EXPECT_EQ(get(0, "PMI_hwloc_xmlfile"), "cmd=get_result rc=-1 msg=key_PMI_hwloc_xmlfile_not_found value=unknown");
  EXPECT_EQ(bootstraps[0]->gets, 0);
  EXPECT_EQ(get(0, "nobody"), "cmd=get_result rc=-1 msg=key_nobody_not_found value=unknown");
  EXPECT_EQ(bridges[0]->answer("cmd=put kvsname=kvs"), "cmd=put_result rc=-1 msg=no_key");
  EXPECT_EQ(bridges[0]->answer("cmd=lookup_name service=x"), "cmd=lookup_result rc=-1 msg=names_cannot_be_published");
  EXPECT_EQ(bridges[0]->answer("nonsense"), "cmd=_result rc=-1 msg=unknown_command");
}

TEST_F(Bridge, tells_the_library_of_an_incomplete_barrier_and_ends_the_job_on_request) {
  bootstraps[0]->refuses = true;
  EXPECT_EQ(bridges[0]->answer("cmd=barrier_in"), "cmd=barrier_out rc=-1 msg=failed");
  EXPECT_EQ(bridges[1]->answer("cmd=abort exitcode=9"), "");
  EXPECT_NE(bootstraps[1]->aborted.find("exit code 9"), std::string::npos) << bootstraps[1]->aborted;
}

TEST_F(Bridge, serves_requests_that_come_in_pieces_and_several_at_a_time) {
  int library = bridges[0]->descriptor();
  auto say = [&](std::string_view text) {
    ASSERT_EQ(::send(library, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  };
  auto hear = [&](std::size_t bytes) {
    std::string text(bytes, '\0');
    EXPECT_EQ(::recv(library, text.data(), bytes, MSG_WAITALL), static_cast<ssize_t>(bytes));
    return text;
  };
  say("cmd=get_");
  say("appnum\ncmd=get_appnum\ncmd=fin");
  std::string answer = "cmd=appnum appnum=0\n";
  EXPECT_EQ(hear(2 * answer.size()), answer + answer);
  say("alize\n");
  EXPECT_EQ(hear(17), "cmd=finalize_ack\n");
}

}  // namespace
}  // namespace hvd::bootstrap
