// All ranks leave their loops at the same step. Tests the record of the stop point, whole ranks that agree on it, and
// the time when a job has to stop.
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <thread>

#include "ranks_as_threads.hpp"
#include "runtime/agreement/coordinator.hpp"
#include "runtime/ending/stop_watch.hpp"
#include "runtime/runtime.hpp"
#include "runtime/synchronised.hpp"
#include "runtime_rig.hpp"

namespace hvd::runtime {
namespace {

using namespace std::chrono_literals;
using testing::Ensemble;
using testing::RankThread;

TEST(StopPoint, is_the_first_request_of_any_rank_and_comes_once) {
  std::vector<std::string> log;
  ProcessSets sets(4);
  Coordinator::Settings settings;
  settings.slots = 16;
  Coordinator coordinator(settings, sets, [&](const Record& record) {
    if (const auto* it = std::get_if<StopPointRecord>(&record))
      log.push_back(std::to_string(it->by.value) + " " + std::string(it->reason));
  });
  coordinator.set_stop_point(Rank{3}, StopCause::warned, "SIGUSR1");
  coordinator.set_stop_point(Rank{1}, StopCause::time, "late");
  EXPECT_EQ(log, std::vector<std::string>{"3 SIGUSR1"});
}

TEST(StopPoint, is_not_set_any_more_once_the_job_ends) {
  bool has_one = false;
  ProcessSets sets(2);
  Coordinator::Settings settings;
  settings.slots = 16;
  Coordinator coordinator(settings, sets, [&](const Record& record) {
    has_one = has_one || std::holds_alternative<StopPointRecord>(record);
  });
  coordinator.shut_down(Rank{0}, "");
  coordinator.set_stop_point(Rank{1}, StopCause::program, "");
  EXPECT_FALSE(has_one);
}

TEST(StopPoint, travels_as_a_request_and_as_a_record) {
  Buffer bytes;
  encode(Request(StopPointRequest{StopCause::time, "the end"}), bytes);
  auto request = decode_request(bytes);
  ASSERT_TRUE(request);
  EXPECT_EQ(std::get<StopPointRequest>(*request).cause, StopCause::time);
  EXPECT_EQ(std::get<StopPointRequest>(*request).reason, "the end");
  RecordStorage storage;
  encode(Record(StopPointRecord{Rank{7}, StopCause::warned, "SIGUSR1"}), bytes);
  auto record = decode_record(bytes, storage);
  ASSERT_TRUE(record);
  EXPECT_EQ(std::get<StopPointRecord>(*record).by, Rank{7});
  EXPECT_EQ(std::get<StopPointRecord>(*record).reason, "SIGUSR1");
}

TEST(StopPoint, stops_a_rank_alone_whose_loop_has_no_operations) {
  Ensemble ensemble(testing::made_up_world({1}));
  testing::run_ranks(ensemble, [&](RankThread&) {
    Runtime::Parts parts;
    parts.world = ensemble.world;
    parts.world.rank = Rank{0};
    parts.threads = ensemble.hub;
    auto runtime = Runtime::start(std::move(parts), Deadline::after(30s));
    ASSERT_TRUE(runtime) << runtime.error().message;
    (*runtime)->request_stop_point(StopCause::warned, "SIGUSR1");
    while ((*runtime)->stop_point() == nullptr) std::this_thread::yield();
    auto stops = (*runtime)->should_stop(0);
    EXPECT_TRUE(stops && *stops);
    (*runtime)->stop();
  });
}

class StopsOn : public ::testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(nodes_of, StopsOn,
                         ::testing::Values(std::vector{1}, std::vector{3}, std::vector{2, 1}, std::vector{1, 1, 1}));

// A rank that reduces step after step until it is told to stop. The result is the last step that it did.
int steps_until_the_stop(Runtime& runtime, int asker, int asks_at) {
  Signature signature;
  signature.shape = {8};
  std::vector<float> data(8);
  for (int step = 1; step < 10'000; ++step) {
    std::vector<Start> starts;
    for (const char* name : {"a", "b", "c"}) {
      auto operation = runtime.prepare(name, signature);
      if (!operation) return -1;
      starts.push_back({*operation, data.data(), data.data()});
    }
    for (const Start& use : starts) {
      auto number = runtime.submit({&use, 1});
      if (!number) return -1;
      HandleCell* cell = runtime.find(*number);
      if (!runtime.wait(*cell, Deadline::after(60s)) || cell->error) return -1;
      runtime.note_synchronised(*cell);
      runtime.release(*cell);
      runtime.release(*use.operation);
    }
    if (runtime.world().rank.value == asker && step == asks_at)
      runtime.request_stop_point(StopCause::program, "enough");
    auto stops = runtime.should_stop(0);
    if (!stops || *stops) return stops ? step : -1;
  }
  return -2;
}

TEST_P(StopsOn, all_ranks_stop_at_the_same_step_whichever_rank_asked_for_it) {
  const int ranks = std::accumulate(GetParam().begin(), GetParam().end(), 0);
  for (unsigned seed = 0; seed < 8; ++seed) {
    std::mt19937 random(seed);
    const int asker = static_cast<int>(random() % static_cast<unsigned>(ranks));
    const int asks_at = 1 + static_cast<int>(random() % 20);
    Ensemble ensemble(testing::made_up_world(GetParam()));
    testing::Listeners listeners;
    ASSERT_NO_FATAL_FAILURE(testing::listen_over_loopback(ensemble, listeners));
    std::vector<int> stopped(static_cast<std::size_t>(ranks));
    testing::run_ranks(ensemble, [&](RankThread& thread) {
      auto me = static_cast<std::size_t>(thread.rank().value);
      Runtime::Parts parts;
      parts.world = ensemble.world;
      parts.world.rank = thread.rank();
      parts.config = ensemble.config;
      parts.threads = ensemble.hub;
      parts.net = std::exchange(listeners[me], std::nullopt);
      auto runtime = Runtime::start(std::move(parts), Deadline::after(30s));
      ASSERT_TRUE(runtime) << runtime.error().message;
      stopped[me] = steps_until_the_stop(**runtime, asker, asks_at);
      (*runtime)->stop();
    });
    for (int step : stopped) EXPECT_EQ(step, stopped.front()) << "seed " << seed;
    EXPECT_GE(stopped.front(), asks_at);
  }
}

TEST(Synchronised, is_known_by_thread_and_by_process_set) {
  note_synchronised(1 << 23, global_process_set, 7);
  note_synchronised(1 << 23, global_process_set, 5);  // the operation was agreed on earlier, but waited for later
  EXPECT_EQ(synchronised(1 << 23, global_process_set), 7u);
  EXPECT_EQ(synchronised(2 << 23, global_process_set), 0u);
  std::uint64_t elsewhere = 1;
  std::thread([&] { elsewhere = synchronised(1 << 23, global_process_set); }).join();
  EXPECT_EQ(elsewhere, 0u);
}

// A scheduler that gives the next of these answers each time that it is asked.
struct Scheduler {
  std::vector<std::optional<std::chrono::seconds>> words;
  std::vector<bool> anew{};
  EndOfJob::TimeLeft time_left() {
    return [this](bool is_anew) {
      anew.push_back(is_anew);
      auto word = words.front();
      if (words.size() > 1) words.erase(words.begin());
      return word;
    };
  }
};
const Clock::time_point began{1000h};

TEST(EndOfJob, comes_when_what_is_left_is_less_than_write_steps_and_margin) {
  Scheduler scheduler{{1000s, 500s, 111s, 109s}};
  Lead lead(30s);
  lead.wrote_for(40s);
  lead.asked(began);
  lead.asked(began + 10s);  // the lead is 30 s of margin + 60 s for one and a half writes + 20 s for two steps
  EndOfJob end(scheduler.time_left(), lead);
  EXPECT_EQ(end.look(began), std::nullopt);
  EXPECT_EQ(end.next_look(), began + 445s);
  EXPECT_EQ(end.look(began + 500s), std::nullopt);
  EXPECT_EQ(end.look(began + 889s), std::nullopt);
  EXPECT_EQ(end.look(began + 891s), 109s);
  EXPECT_EQ(scheduler.anew, (std::vector{false, true, true, true}));
}

TEST(EndOfJob, moves_away_when_the_job_was_suspended_or_given_more_time) {
  Scheduler scheduler{{100s, 90s, 10s}};
  Lead lead(20s);
  EndOfJob end(scheduler.time_left(), lead);
  EXPECT_EQ(end.look(began), std::nullopt);
  EXPECT_EQ(end.look(began + 300s), std::nullopt) << "by its own count the time was up long ago";
  EXPECT_TRUE(end.look(began + 380s));
}

TEST(EndOfJob, is_counted_by_our_own_clock_where_the_scheduler_tells_it_once) {
  Scheduler scheduler{{100s, std::nullopt}};
  Lead lead(20s);
  EndOfJob end(scheduler.time_left(), lead);
  EXPECT_EQ(end.look(began), std::nullopt);
  EXPECT_EQ(end.look(began + 79s), std::nullopt);
  EXPECT_TRUE(end.look(began + 81s));
}

TEST(EndOfJob, does_not_come_where_there_is_none) {
  Scheduler scheduler{{std::nullopt}};
  Lead lead(20s);
  EndOfJob end(scheduler.time_left(), lead);
  EXPECT_EQ(end.look(began), std::nullopt);
  EXPECT_EQ(end.next_look(), std::nullopt);
}

TEST(EndOfJob, leaves_half_of_a_short_job_to_the_training) {
  Scheduler scheduler{{60s, 31s, 29s}};
  Lead lead(300s);
  EndOfJob end(scheduler.time_left(), lead);
  EXPECT_EQ(end.look(began), std::nullopt);
  EXPECT_EQ(end.look(began + 29s), std::nullopt);
  EXPECT_TRUE(end.look(began + 31s));
}

TEST(Lead, forgets_a_single_long_step_and_a_clock_that_stands_still) {
  Lead lead(0s);
  lead.asked(began);
  lead.asked(began + 100s);
  EXPECT_EQ(lead.of(10h), 200s);
  for (int step = 1; step <= 200; ++step) lead.asked(began + 100s + step * 1s);
  lead.asked(began + 300s);
  EXPECT_LT(lead.of(10h), 3s);
}

}  // namespace
}  // namespace hvd::runtime
