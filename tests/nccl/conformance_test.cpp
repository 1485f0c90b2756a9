// The collectives over NCCL, compared with the naive reference.
#include "base/reduce_op.hpp"
#include "doubles/nccl/control.h"
#include "ranks_on_gpus.hpp"

namespace hvd {
namespace {

using testing::Exercise;
using testing::exercise;
using testing::RanksOnGpus;

class NcclConformance : public ::testing::TestWithParam<int> {
 protected:
  static Config small_buffers() {
    Config config;
    config.device_fusion_threshold_bytes = 1 << 20;
    return config;
  }
  RanksOnGpus ranks{{GetParam()}, small_buffers()};
  const std::unique_ptr<collectives::Algorithm> algorithm = testing::native_algorithm();
  // Without Adasum, which is the mean of a node's ranks here.
  std::vector<Verb> verbs_of_nccl() {
    std::vector<Verb> list = ranks.verbs_of_links();
    std::erase(list, Verb::adasum);
    return list;
  }
};
INSTANTIATE_TEST_SUITE_P(of, NcclConformance, ::testing::Values(2, 3, 4),
                         [](const auto& ranks) { return std::to_string(ranks.param) + "_ranks"; });

TEST_P(NcclConformance, links_do_every_verb_that_moves_data) {
  std::vector<Verb> expected;
  for (const VerbRow& row : verbs())
    if (row.moves_data() && row.verb != Verb::barrier) expected.push_back(row.verb);
  EXPECT_EQ(ranks.verbs_of_links(), expected);
}

TEST_P(NcclConformance, every_type_and_placement_gives_what_the_reference_gives) {
  int done = 0;
  for (const Verb verb : verbs_of_nccl())
    for (int type = 0; type < data_type_count && !HasFailure(); ++type) {
      if (GetParam() > 2 && type % 4 != GetParam() % 4) continue;
      Exercise what;
      what.dtype = static_cast<DataType>(type);
      what.count = 1003;
      what.segments = type % 2 == 0 ? 1 : 5;
      what.in_place = type % 3 == 0;
      what.root = GetParam() - 1;
      if (reduces(verb)) {
        what.prescale = type % 2 == 0 ? 1.0 : 2.0;
        what.postscale = what.in_place ? 0.5 : 1.0;
      }
      done += exercise(ranks, *algorithm, verb, what, 2);
    }
  EXPECT_GE(done, GetParam() > 2 ? 8 : 40);
}

TEST_P(NcclConformance, every_operation_gives_what_the_reference_gives) {
  std::size_t done = 0;
  for (std::size_t at = 0; at < reduce_op_count; ++at) {
    Exercise what;
    what.op = static_cast<ReduceOp>(at);
    what.count = 100;
    done += exercise(ranks, *algorithm, Verb::allreduce, what, 1);
  }
  EXPECT_GE(done, 4U);
}

TEST_P(NcclConformance, tensors_larger_than_the_buffer_go_in_pieces) {
  for (const Verb verb : verbs_of_nccl()) {
    Exercise what;
    what.count = 300'001;
    what.segments = 7;
    EXPECT_TRUE(exercise(ranks, *algorithm, verb, what, 1));
  }
}

TEST_P(NcclConformance, nothing_even_shares_and_joined_ranks_give_what_the_reference_gives) {
  for (const Verb verb : verbs_of_nccl())
    for (const std::int64_t count : {0, 1001}) {
      Exercise what;
      what.count = count;
      what.segments = 3;
      what.even_counts = true;
      if (verb == Verb::allreduce && count > 0) what.joined = 1;
      EXPECT_TRUE(exercise(ranks, *algorithm, verb, what, 1));
    }
}

TEST_P(NcclConformance, one_tensor_is_one_call_without_a_copy) {
  Exercise what;
  what.count = 270'000;  // more than the buffer
  EXPECT_TRUE(exercise(ranks, *algorithm, Verb::allreduce, what, 1));
  const std::size_t calls = hvd_nccl_double_calls("ncclAllReduce");
  EXPECT_TRUE(exercise(ranks, *algorithm, Verb::allreduce, what, 1));
  EXPECT_EQ(hvd_nccl_double_calls("ncclAllReduce") - calls, static_cast<std::size_t>(GetParam()));
}

}  // namespace
}  // namespace hvd
