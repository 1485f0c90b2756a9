// When the stages of a batch on a device began and ended.
#include "runtime/lanes/stages_of_batch.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <vector>

#include "fixtures/late_device/late_device.hpp"

namespace hvd::runtime {
namespace {

using What = StageOnDevice::What;

Clock::time_point moment(int seconds) {
  return Clock::time_point{} + std::chrono::seconds(seconds);
}

// Events come when the test lets them, and the host looks at once.
class StagesOfABatch : public ::testing::Test {
 protected:
  StagesOfABatch() { notes_.want(true); }
  // Of a stream of its own, on which nothing is done before come().
  Event event() {
    streams_.push_back(device_.stream().value());
    const Stream stream{streams_.back().get()};
    device_.hold(stream);
    const Event event = device_.record(stream).value();
    held_[event.token] = stream;
    return event;
  }
  void come(Event event) {
    device_.let_go(held_[event.token]);
    devices::finish(device_, held_[event.token]);
  }
  std::vector<StagesOfBatch::Ended> look() {
    stages_.take(notes_.list());
    const auto ended = stages_.look(device_);
    return {ended.begin(), ended.end()};
  }

  testing::LateDevice device_{1, 0};
  std::vector<std::shared_ptr<void>> streams_;
  std::map<std::uint64_t, Stream> held_;
  NotedStages notes_;
  StagesOfBatch stages_;
};

TEST_F(StagesOfABatch, end_in_the_order_of_their_part_whatever_the_device_ends_first) {
  const Event packed = event(), copied = event(), packed_next = event();
  notes_.add(What::packs, 0, moment(1), packed);
  notes_.add(What::to_host, 0, moment(1), copied);
  notes_.add(What::packs, 1, moment(1), packed_next);
  EXPECT_TRUE(look().empty());
  EXPECT_TRUE(stages_.has_begun());
  EXPECT_EQ(stages_.began_at(), moment(1));
  come(copied);
  EXPECT_TRUE(look().empty());
  come(packed_next);
  auto ended = look();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].stage.part, 1);
  come(packed);
  ended = look();
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended[0].stage.what, What::packs);
  EXPECT_EQ(ended[1].stage.what, What::to_host);
  EXPECT_EQ(ended[1].begin, ended[0].end);
  EXPECT_TRUE(look().empty());
}

TEST_F(StagesOfABatch, begin_when_the_part_before_is_through_the_same_stage_or_when_they_are_queued) {
  const Event first = event(), second = event(), third = event();
  notes_.add(What::packs, 0, moment(1), first);
  notes_.add(What::packs, 1, moment(2), second);
  notes_.add(What::unpacks, 2, moment(3), third);
  for (Event each : {first, second, third}) come(each);
  const auto ended = look();
  ASSERT_EQ(ended.size(), 3u);
  EXPECT_EQ(ended[0].begin, moment(1));
  EXPECT_EQ(ended[1].begin, ended[0].end);
  EXPECT_EQ(ended[2].begin, moment(3));
}

TEST_F(StagesOfABatch, have_the_times_of_the_host_where_they_ran_on_the_host) {
  const Event copied = event();
  come(copied);
  notes_.add(What::to_host, 0, moment(1), copied);
  const auto before = Clock::now();
  const auto set_off = notes_.now();
  notes_.add_travel("mpi", Verb::allreduce, 0, set_off);
  notes_.add_travel("mpi", Verb::allreduce, 1, set_off);
  const auto after = Clock::now();
  const auto ended = look();
  ASSERT_EQ(ended.size(), 3u);
  EXPECT_EQ(ended[0].end, set_off) << "the host has seen the copy's end before it went on";
  EXPECT_GE(ended[1].begin, before);
  EXPECT_LE(ended[1].end, after);
  EXPECT_EQ(ended[2].begin, set_off) << "several parts are on the rail at the same time";
}

TEST_F(StagesOfABatch, are_none_where_none_are_wanted_and_no_more_than_a_timeline_needs) {
  const Event end = event();
  for (std::int64_t part = 0; part < 1000; ++part) notes_.add(What::packs, part, moment(1), end);
  EXPECT_EQ(notes_.size(), static_cast<std::size_t>(NotedStages::most_parts));
  notes_.clear();
  notes_.want(false);
  notes_.add(What::packs, 0, notes_.now(), end);
  notes_.add_travel("mpi", Verb::allreduce, 0, notes_.now());
  EXPECT_EQ(notes_.size(), 0u);
  EXPECT_TRUE(look().empty());
  EXPECT_FALSE(stages_.has_begun());
}

}  // namespace
}  // namespace hvd::runtime
