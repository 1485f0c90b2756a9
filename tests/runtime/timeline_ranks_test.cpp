// Observers and the timeline in whole ranks, one rank per thread.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "in_own_folder.hpp"
#include "json.hpp"
#include "ranks_as_threads.hpp"
#include "runtime/runtime.hpp"

namespace hvd::runtime {
namespace {

using testing::check_spans;
using testing::Ensemble;
using testing::Json;
using testing::JsonReader;
using testing::RankThread;
using testing::run_ranks;

std::unique_ptr<Runtime> start_rank(Ensemble& ensemble, RankThread& thread) {
  Runtime::Parts parts;
  parts.world = ensemble.world;
  parts.world.rank = thread.rank();
  parts.config = ensemble.config;
  parts.threads = ensemble.hub;
  auto started = Runtime::start(std::move(parts), Deadline::after(std::chrono::seconds(30)));
  if (!started) panic(started.error().message);
  return std::move(*started);
}

// Returns the error's text, "" if there is none.
std::string reduce(Runtime& runtime, const std::string& name, std::int64_t count = 3) {
  std::vector<float> data(static_cast<std::size_t>(count), 1);
  Signature signature;
  signature.shape = {count};
  auto operation = runtime.prepare(name, signature);
  if (!operation) return operation.error().message;
  Start start{*operation, data.data(), data.data(), 0};
  auto handle = runtime.submit({&start, 1});
  if (!handle) return handle.error().message;
  HandleCell* cell = runtime.find(*handle);
  EXPECT_TRUE(runtime.wait(*cell, Deadline::after(std::chrono::seconds(60))));
  std::string text = cell->error ? cell->error->message : "";
  runtime.release(*cell);
  return text;
}

// An observer that fails the test if it is called after it was removed.
class Guest final : public Observer {
 public:
  std::atomic<bool> is_there{false};
  std::atomic<int> calls{0};
  void submitted(const Operation&) override { called(); }
  void ready(ProcessSetId, std::string_view, Rank) override { called(); }
  void agreed(const Operation&, Sequence) override { called(); }
  void started(Sequence, std::string_view, std::string_view) override { called(); }
  void finished(const Operation&, Sequence) override { called(); }

 private:
  void called() {
    EXPECT_TRUE(is_there);
    ++calls;
  }
};

TEST(Observers, come_and_go_while_the_ranks_work) {
  Ensemble ensemble(testing::made_up_world({2}));
  run_ranks(ensemble, [&](RankThread& thread) {
    auto runtime = start_rank(ensemble, thread);
    std::vector<Guest> guests(3);
    std::vector<std::thread> hosts;
    for (Guest& guest : guests)
      hosts.emplace_back([&] {
        for (int stay = 0; stay < 100; ++stay) {
          guest.is_there = true;
          runtime->observers().add(guest);
          runtime->observers().remove(guest);
          guest.is_there = false;
        }
      });
    for (int round = 0; round < 200; ++round) EXPECT_EQ(reduce(*runtime, "a"), "");
    for (std::thread& host : hosts) host.join();
  });
}

TEST(Observers, hear_of_everything_from_their_coming_to_their_going) {
  Ensemble ensemble(testing::made_up_world({2}));
  run_ranks(ensemble, [&](RankThread& thread) {
    auto runtime = start_rank(ensemble, thread);
    EXPECT_EQ(reduce(*runtime, "a"), "");
    Guest guest;
    guest.is_there = true;
    runtime->observers().add(guest);
    EXPECT_EQ(reduce(*runtime, "a"), "");
    runtime->observers().remove(guest);
    guest.is_there = false;
    EXPECT_EQ(guest.calls, 4);  // submitted, agreed, started, finished
    EXPECT_EQ(reduce(*runtime, "a"), "");
    EXPECT_EQ(guest.calls, 4);
  });
}

TEST(Observers, can_come_and_go_after_the_end) {
  Ensemble ensemble(testing::made_up_world({1}));
  run_ranks(ensemble, [&](RankThread& thread) {
    auto runtime = start_rank(ensemble, thread);
    Guest before, after;
    runtime->observers().add(before);
    runtime->stop();
    runtime->observers().add(after);
    runtime->observers().remove(after);
    runtime->observers().remove(before);
  });
}

class TimelineOfRanks : public testing::InOwnFolder {
 protected:
  std::string path_ = folder_ + "/timeline.json";
  static Json read(const std::string& path) {
    auto trace = JsonReader::read_file(path);
    EXPECT_TRUE(trace) << path << " is no JSON";
    return trace ? *trace : Json();
  }
  static int shown(const Json& trace, const std::string& name) {
    int times = 0;
    for (const Json& event : trace.items) times += event["name"].text == name || event["args"]["name"].text == name;
    return times;
  }
};

TEST_F(TimelineOfRanks, is_written_by_rank_0_from_the_start_if_a_file_is_named) {
  Ensemble ensemble(testing::made_up_world({3}));
  ensemble.config.timeline = path_;
  ensemble.config.timeline_mark_cycles = true;
  run_ranks(ensemble, [&](RankThread& thread) {
    auto runtime = start_rank(ensemble, thread);
    for (int step = 0; step < 5; ++step) EXPECT_EQ(reduce(*runtime, "allreduce.test_allreduce"), "");
  });
  Json trace = read(path_);
  EXPECT_EQ(check_spans(trace), 0);
  EXPECT_EQ(shown(trace, "allreduce.test_allreduce"), 1);
  EXPECT_EQ(shown(trace, "NEGOTIATE_ALLREDUCE"), 5);
  EXPECT_EQ(shown(trace, "ALLREDUCE"), 5);
  EXPECT_EQ(shown(trace, "SHM_ALLREDUCE") + shown(trace, "INPROC_ALLREDUCE"), 5);
  EXPECT_EQ(shown(trace, "CYCLE_START"), 5);
  for (const char* rank : {"0", "1", "2"}) EXPECT_GE(shown(trace, rank), 1) << "rank " << rank;
  EXPECT_FALSE(std::filesystem::exists(path_ + ".1"));
}

TEST_F(TimelineOfRanks, is_written_by_all_ranks_if_asked) {
  Ensemble ensemble(testing::made_up_world({2}));
  ensemble.config.timeline = path_;
  ensemble.config.timeline_all_ranks = true;
  run_ranks(ensemble, [&](RankThread& thread) {
    auto runtime = start_rank(ensemble, thread);
    EXPECT_EQ(reduce(*runtime, "a"), "");
  });
  for (const std::string& path : {path_, path_ + ".1"}) {
    Json trace = read(path);
    EXPECT_EQ(check_spans(trace), 0);
    EXPECT_EQ(shown(trace, "ALLREDUCE"), 1);
  }
  EXPECT_EQ(read(path_ + ".1").items[2]["args"]["rank"].number, 1);
}

TEST_F(TimelineOfRanks, is_started_stopped_and_switched_by_the_program) {
  Ensemble ensemble(testing::made_up_world({2}));
  ensemble.config.timeline = "DYNAMIC";
  run_ranks(ensemble, [&](RankThread& thread) {
    auto runtime = start_rank(ensemble, thread);
    TimelineSwitch& timeline = runtime->timeline();
    timeline.stop();  // no timeline is being written
    EXPECT_EQ(reduce(*runtime, "before"), "");
    EXPECT_TRUE(timeline.start(path_, false));
    EXPECT_EQ(reduce(*runtime, "a"), "");
    EXPECT_TRUE(timeline.start(path_, false));  // the timeline goes on
    EXPECT_EQ(reduce(*runtime, "b"), "");
    EXPECT_TRUE(timeline.start(path_ + "2", true));
    EXPECT_EQ(reduce(*runtime, "c"), "");
    timeline.stop();
    timeline.stop();
    EXPECT_EQ(reduce(*runtime, "after"), "");
    EXPECT_TRUE(timeline.start(path_ + "3", false));
    EXPECT_EQ(reduce(*runtime, "d"), "");
  });
  EXPECT_FALSE(std::filesystem::exists("DYNAMIC"));
  const std::map<std::string, std::vector<std::string>> files{
      {path_, {"a", "b"}}, {path_ + "2", {"c"}}, {path_ + "3", {"d"}}};
  for (const auto& [path, names] : files) {
    Json trace = read(path);
    EXPECT_EQ(check_spans(trace), 0);
    EXPECT_EQ(shown(trace, "ALLREDUCE"), static_cast<int>(names.size()));
    for (const std::string& name : names) EXPECT_EQ(shown(trace, name), 1) << name << " in " << path;
    EXPECT_EQ(shown(trace, "CYCLE_START") > 0, path == path_ + "2");
  }
}

TEST_F(TimelineOfRanks, cannot_be_started_without_the_setting) {
  Ensemble ensemble(testing::made_up_world({1}));
  run_ranks(ensemble, [&](RankThread& thread) {
    auto runtime = start_rank(ensemble, thread);
    auto status = runtime->timeline().start(path_, false);
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("HOROVOD_TIMELINE"), std::string::npos);
  });
}

TEST_F(TimelineOfRanks, that_cannot_be_written_leaves_the_job_alone) {
  Ensemble ensemble(testing::made_up_world({2}));
  ensemble.config.timeline = folder_;
  run_ranks(ensemble, [&](RankThread& thread) {
    auto runtime = start_rank(ensemble, thread);
    EXPECT_EQ(reduce(*runtime, "a"), "");
    auto status = runtime->timeline().start(folder_ + "/none/t.json", false);
    EXPECT_EQ(static_cast<bool>(status), thread.rank() != Rank{0});
    if (!status) {
      EXPECT_NE(status.error().message.find("/none/t.json"), std::string::npos);
    }
    EXPECT_EQ(reduce(*runtime, "a"), "");
    EXPECT_TRUE(runtime->timeline().start(path_, false));
    EXPECT_EQ(reduce(*runtime, "a"), "");
  });
  EXPECT_EQ(shown(read(path_), "ALLREDUCE"), 1);
}

// Nobody stops the timeline, and nothing else happens. The latest events must reach the file nevertheless.
TEST_F(TimelineOfRanks, reaches_its_file_by_itself) {
  Ensemble ensemble(testing::made_up_world({1}));
  ensemble.config.timeline = path_;
  run_ranks(ensemble, [&](RankThread& thread) {
    auto runtime = start_rank(ensemble, thread);
    EXPECT_EQ(reduce(*runtime, "a"), "");
    auto deadline = Deadline::after(std::chrono::seconds(30));
    while (shown(read(path_), "ALLREDUCE") == 0 && !deadline.passed()) std::this_thread::yield();
    EXPECT_EQ(shown(read(path_), "ALLREDUCE"), 1);
    EXPECT_EQ(check_spans(read(path_)), 0);
  });
}

}  // namespace
}  // namespace hvd::runtime
