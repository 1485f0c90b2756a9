// Ranges for a profiler, on the double of one.
#include "runtime/observers/profiler_ranges.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <set>
#include <string>
#include <vector>

#include "doubles/nvtx/control.h"
#include "ranks_as_threads.hpp"
#include "runtime/runtime.hpp"

namespace hvd::runtime {
namespace {

using testing::Ensemble;
using testing::RankThread;
using Lines = std::vector<std::string>;

Environment with_profiler(const std::string& path = HVD_NVTX_DOUBLE) {
  Environment environment;
  environment.set("NVTX_INJECTION64_PATH", path);
  return environment;
}

Lines taken() {
  Lines lines;
  const auto add = [](void* list, const char* line) { static_cast<Lines*>(list)->push_back(line); };
  hvd_nvtx_double_take(add, &lines);
  return lines;
}

void reduce_one(Runtime& runtime, const std::string& name) {
  std::vector<float> data(3, 1);
  Signature signature;
  signature.shape = {3};
  auto operation = runtime.prepare(name, signature);
  ASSERT_TRUE(operation) << operation.error().message;
  const Start start{*operation, data.data(), data.data(), 0};
  auto handle = runtime.submit({&start, 1});
  ASSERT_TRUE(handle) << handle.error().message;
  HandleCell* cell = runtime.find(*handle);
  EXPECT_TRUE(runtime.wait(*cell, Deadline::after(std::chrono::seconds(60))));
  runtime.release(*cell);
}

// The lines of two ranks that each reduce two tensors.
Lines lines_of_job(bool is_disabled) {
  ::setenv("NVTX_INJECTION64_PATH", HVD_NVTX_DOUBLE, 1);
  Ensemble ensemble(testing::made_up_world({2}));
  ensemble.config.disable_nvtx_ranges = is_disabled;
  testing::run_ranks(ensemble, [&](RankThread& thread) {
    Runtime::Parts parts;
    parts.world = ensemble.world;
    parts.world.rank = thread.rank();
    parts.config = ensemble.config;
    parts.threads = ensemble.hub;
    auto runtime = Runtime::start(std::move(parts), Deadline::after(std::chrono::seconds(30)));
    ASSERT_TRUE(runtime) << runtime.error().message;
    for (const char* name : {"allreduce.a", "allreduce.b"}) reduce_one(**runtime, name);
  });
  ::unsetenv("NVTX_INJECTION64_PATH");
  return taken();
}

TEST(ProfilerRanges, show_each_operation_of_each_rank_from_its_start_to_its_end) {
  const Lines lines = lines_of_job(false);
  std::multiset<std::string> shown;
  std::set<std::string> open;
  for (const std::string& line : lines) {
    if (line.starts_with("end ")) {
      EXPECT_EQ(open.erase(line.substr(4)), 1u) << line;
      continue;
    }
    const std::size_t blank = line.find(' ', 6);
    open.insert(line.substr(6, blank - 6));
    shown.insert(line.substr(blank + 1));
  }
  EXPECT_TRUE(open.empty());
  for (const char* name : {"a", "b"})
    EXPECT_EQ(shown.count(std::string("Horovod: allreduce.") + name + " 12"), 2u) << ::testing::PrintToString(lines);
}

TEST(ProfilerRanges, are_off_by_the_knob) {
  EXPECT_EQ(lines_of_job(true), Lines());
}

TEST(ProfilerRanges, show_a_batch_from_its_issue_to_its_end_on_the_device) {
  auto ranges = ProfilerRanges::for_profiler(with_profiler());
  ASSERT_NE(ranges, nullptr);
  taken();
  ranges->issued(Sequence{7}, "cuda device 0", "allreduce.a");
  ranges->issued(Sequence{8}, "cuda device 0", "allreduce.b");
  ranges->ended(Sequence{7});
  ranges->ended(Sequence{9});  // it was issued before there were ranges
  const Lines lines = taken();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_TRUE(lines[0].ends_with(" Horovod: cuda device 0: allreduce.a 7")) << lines[0];
  EXPECT_TRUE(lines[2].starts_with("end ")) << lines[2];
  ranges.reset();
  EXPECT_EQ(taken().size(), 1u) << "the range that is left is ended";
}

TEST(ProfilerRanges, are_not_there_without_a_profiler) {
  EXPECT_EQ(ProfilerRanges::for_profiler(Environment()), nullptr);
}

TEST(ProfilerRanges, are_missing_with_a_warning_where_the_profiler_cannot_be_loaded) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(ProfilerRanges::for_profiler(with_profiler("/nowhere/libprofiler.so")), nullptr);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("NVTX_INJECTION64_PATH: /nowhere/libprofiler.so"), std::string::npos) << said;
  EXPECT_NE(said.find("HOROVOD_DISABLE_NVTX_RANGES=1"), std::string::npos) << said;
}

}  // namespace
}  // namespace hvd::runtime
