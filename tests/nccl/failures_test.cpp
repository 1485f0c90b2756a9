// What becomes of work over NCCL if NCCL or a rank fails.
#include <algorithm>
#include <cmath>
#include <thread>

#include "doubles/cuda/control.h"
#include "doubles/nccl/control.h"
#include "native/nccl/library.hpp"
#include "ranks_on_gpus.hpp"

namespace hvd {
namespace {

using testing::OnGpu;
using testing::Part;
using testing::RanksOnGpus;
using Tasks = testing::Performers::Tasks;

class NcclFailures : public ::testing::Test {
 protected:
  void TearDown() override { end(Error(ErrorCode::peer_lost, "the test is over")); }
  void end(const Error& reason) {
    if (ranks) ranks->abort(reason);
    tasks.clear();
    tensors.clear();
    ranks.reset();
  }
  // Begins an allreduce of so many elements on each rank.
  void begin(std::vector<std::int64_t> counts, DataType dtype = DataType::f32) {
    if (!ranks) ranks = std::make_unique<RanksOnGpus>(std::vector<int>{static_cast<int>(counts.size())});
    Collective collective;
    collective.device = DeviceKind::cuda;
    collective.dtype = dtype;
    tasks = ranks->plan(*testing::native_algorithm(), collective);
    values.assign(counts.size(), std::vector<float>(1000, 1.0f));
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      const Segment one{TensorView{values[rank].data(), counts[rank], dtype}};
      const int number = static_cast<int>(rank);
      tensors.push_back(
          std::make_unique<OnGpu>(ranks->device_of(number), ranks->stream_of(number), Part{{one}, {one}}));
      testing::restart(*tasks[rank], tensors.back()->part(), Sequence{0});
    }
  }
  std::string failure_of(std::size_t rank) {
    Progress progress = Progress::pending;
    while ((progress = tasks[rank]->step()) == Progress::pending) std::this_thread::yield();
    return progress == Progress::failed ? tasks[rank]->failure().message : "";
  }
  void wait_for_calls(const char* entry_point, std::size_t calls) {
    while (hvd_nccl_double_calls(entry_point) < calls) std::this_thread::yield();
  }

  std::unique_ptr<RanksOnGpus> ranks;
  std::vector<std::vector<float>> values;
  std::vector<std::unique_ptr<OnGpu>> tensors;
  Tasks tasks;
};

TEST_F(NcclFailures, a_start_that_fails_is_named_with_the_rank_and_the_code) {
  hvd_nccl_double_refuse("ncclCommInitRankConfig", 3, 0);
  begin({4, 4});
  std::string found;
  for (std::size_t rank = 0; rank < 2; ++rank) {  // one of them has met the refusal, the other waits for it
    if (tasks[rank]->step() == Progress::pending && rank == 0) wait_for_calls("ncclCommInitRankConfig", 1);
  }
  while (found.empty())
    for (auto& task : tasks)
      if (task->step() == Progress::failed) found = task->failure().message;
  EXPECT_NE(found.find("the start over 'gpus' has failed: internal error"), std::string::npos) << found;
  EXPECT_NE(found.find("code 3"), std::string::npos) << found;
  EXPECT_NE(found.find("on rank "), std::string::npos) << found;
}

TEST_F(NcclFailures, a_launch_that_fails_is_named_with_the_rank) {
  for (const char* when : {"ncclAllReduce", "late"}) {
    constexpr int code_of_timeout = 8;
    hvd_nccl_double_refuse(when, code_of_timeout, 0);
    begin({4, 4});
    const Error* failure = nullptr;
    while (failure == nullptr)
      for (auto& task : tasks)
        if (task->step() == Progress::failed) failure = &task->failure();
    for (const char* part : {"NCCL timeout", "code 8", "on rank "})
      EXPECT_NE(failure->message.find(part), std::string::npos) << failure->message;
    end(Error(ErrorCode::peer_lost, "it has failed"));
  }
}

TEST_F(NcclFailures, a_launch_that_fails_late_because_of_a_peer_is_a_consequence) {
  begin({4, 4});
  ASSERT_EQ(RanksOnGpus::step_until_none_is_pending(tasks), Progress::done);
  // A rank whose device has work left aborts, and the other one would wait for it.
  for (int rank = 0; rank < 2; ++rank) devices::finish(ranks->device_of(rank), ranks->stream_of(rank));
  end(Error(ErrorCode::shut_down, "in order"));
  hvd_nccl_double_refuse("late", 6, 0);
  begin({4, 4});
  const Error* failure = nullptr;
  while (failure == nullptr)
    for (auto& task : tasks)
      if (task->step() == Progress::failed) failure = &task->failure();
  EXPECT_EQ(failure->code, ErrorCode::peer_lost);
  EXPECT_TRUE(failure->is_a_consequence);
}

TEST_F(NcclFailures, a_start_that_hangs_is_ended_by_an_abort) {
  hvd_nccl_double_hang(HVD_NCCL_DOUBLE_INIT, 1);
  begin({4, 4});
  EXPECT_EQ(tasks[0]->step(), Progress::pending);
  ranks->abort();
  EXPECT_NE(failure_of(0).find("given up"), std::string::npos);
  hvd_nccl_double_hang(HVD_NCCL_DOUBLE_INIT, 0);
}

TEST_F(NcclFailures, a_launch_that_hangs_is_ended_by_an_abort) {
  hvd_nccl_double_hang(HVD_NCCL_DOUBLE_LAUNCH, 1);
  const std::size_t calls = hvd_nccl_double_calls("ncclAllReduce");
  begin({4, 4});
  wait_for_calls("ncclAllReduce", calls + 2);
  EXPECT_EQ(tasks[0]->step(), Progress::pending);
  EXPECT_FALSE(tasks[0]->has_launched());
  ranks->abort();
  EXPECT_NE(failure_of(1).find("given up"), std::string::npos);
  hvd_nccl_double_hang(HVD_NCCL_DOUBLE_LAUNCH, 0);
}

TEST_F(NcclFailures, aborted_results_are_NaN_and_integers_are_left) {
  for (const DataType dtype : {DataType::f32, DataType::i32}) {
    ranks = std::make_unique<RanksOnGpus>(std::vector<int>{2});
    hvd_double_hold(ranks->stream_of(1).handle);
    begin({1000, 1000}, dtype);
    ASSERT_EQ(RanksOnGpus::step_until_none_is_pending(tasks), Progress::done);
    ranks->abort();
    hvd_double_let_go(ranks->stream_of(1).handle);
    tensors[0]->download();
    tensors[1]->download();
    for (const auto& of_rank : values) {
      const auto is_nan = [](float value) { return std::isnan(value); };
      EXPECT_TRUE(dtype != DataType::f32 || std::ranges::all_of(of_rank, is_nan));
    }
    end(Error(ErrorCode::peer_lost, "the test is over"));
  }
}

TEST_F(NcclFailures, aborted_results_of_every_verb_are_NaN_and_inputs_are_left) {
  const std::vector<Verb> verbs = RanksOnGpus({2}).verbs_of_links();
  ASSERT_FALSE(verbs.empty());
  for (const Verb verb : verbs) {
    SCOPED_TRACE(name_of(verb));
    const VerbRow& row = row_of(verb);
    ranks = std::make_unique<RanksOnGpus>(std::vector<int>{2});
    hvd_double_hold(ranks->stream_of(1).handle);
    Collective collective;
    collective.device = DeviceKind::cuda;
    collective.verb = verb;
    collective.root = Seat{0};
    tasks = ranks->plan(*testing::native_algorithm(), collective);
    const std::size_t sent = row.sizes == VerbRow::Sizes::rows ? 500 : 1000,
                      received = row.outcome == VerbRow::Outcome::share ? 500 : 1000;
    std::vector<std::vector<float>> in(2, std::vector<float>(sent, 1)), out(2, std::vector<float>(received, 2));
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const auto all_of = [](std::vector<float>& of_rank) {
        return Segment{TensorView{of_rank.data(), static_cast<std::int64_t>(of_rank.size()), DataType::f32}};
      };
      const int number = static_cast<int>(rank);
      tensors.push_back(std::make_unique<OnGpu>(ranks->device_of(number), ranks->stream_of(number),
                                                Part{{all_of(in[rank])}, {all_of(out[rank])}}));
      const std::vector<std::int64_t> halves(row.sizes == VerbRow::Sizes::splits ? 2 : 0, 500);
      tasks[rank]->resize(halves, halves);
      tasks[rank]->restart(tensors.back()->part().in, tensors.back()->part().out, Sequence{0});
    }
    ASSERT_EQ(RanksOnGpus::step_until_none_is_pending(tasks), Progress::done);
    ranks->abort();
    hvd_double_let_go(ranks->stream_of(1).handle);
    for (auto& of_rank : tensors) of_rank->download();
    for (std::size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(in[rank], std::vector<float>(sent, 1)) << "the input of rank " << rank;
      const bool may_be_over = row.has_root() && rank == 0;  // a root has its data already
      const auto is_nan = [](float value) { return std::isnan(value); };
      EXPECT_TRUE(may_be_over || std::ranges::all_of(out[rank], is_nan)) << "rank " << rank;
    }
    end(Error(ErrorCode::peer_lost, "the test is over"));
  }
}

TEST_F(NcclFailures, the_double_names_ranks_that_call_different_things) {
  begin({4, 5});
  ASSERT_EQ(RanksOnGpus::step_until_none_is_pending(tasks), Progress::done);
  std::string found;
  const auto keep = [](void* text, const char* finding) { *static_cast<std::string*>(text) = finding; };
  while (hvd_nccl_double_take_findings(keep, &found) == 0) std::this_thread::yield();
  EXPECT_NE(found.find("allreduce of 4 elements"), std::string::npos) << found;
  EXPECT_NE(found.find("allreduce of 5 elements"), std::string::npos) << found;
  ranks->abort();
  static_cast<void>(hvd_nccl_double_take_findings(nullptr, nullptr));
}

TEST_F(NcclFailures, an_end_in_order_destroys_and_any_other_aborts) {
  const std::size_t destroyed = hvd_nccl_double_calls("ncclCommDestroy"),
                    aborted = hvd_nccl_double_calls("ncclCommAbort");
  begin({4, 4});
  ASSERT_EQ(RanksOnGpus::step_until_none_is_pending(tasks), Progress::done);
  for (int rank = 0; rank < 2; ++rank) devices::finish(ranks->device_of(rank), ranks->stream_of(rank));
  end(Error(ErrorCode::shut_down, "in order"));
  EXPECT_EQ(hvd_nccl_double_calls("ncclCommDestroy"), destroyed + 2);
  begin({4, 4});
  ASSERT_EQ(RanksOnGpus::step_until_none_is_pending(tasks), Progress::done);
  end(Error(ErrorCode::peer_lost, "a loss"));
  EXPECT_EQ(hvd_nccl_double_calls("ncclCommAbort"), aborted + 2);
}

}  // namespace
}  // namespace hvd
