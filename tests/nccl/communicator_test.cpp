// Communicators by themselves, on the double of NCCL.
#include "transport/nccl/communicator.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "doubles/nccl/control.h"

namespace hvd::transport::over_nccl {
namespace {

class Communicators : public ::testing::Test {
 protected:
  Communicators() : library(*nccl::load_library(HVD_NCCL_DOUBLE)) {}
  void TearDown() override { hvd_nccl_double_set_version(22809); }
  // Makes a communicator of four ranks, and ends it.
  void make(std::size_t ids, bool without_nvls) {
    std::vector<nccl::UniqueId> drawn(ids);
    for (nccl::UniqueId& id : drawn) ASSERT_EQ(library.get_unique_id(&id), nccl::Code::success);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 4; ++rank)
      ranks.emplace_back([&, rank] {
        Communicator communicator(library, "four");
        std::vector<nccl::UniqueId> mine = drawn;
        const Status made = communicator.make(mine, rank, 4, without_nvls, Deadline::after(std::chrono::seconds(30)));
        EXPECT_TRUE(made) << made.error().message;
        communicator.end(true);
      });
    for (std::thread& rank : ranks) rank.join();
  }
  const nccl::Library library;
};

TEST_F(Communicators, start_by_one_id_or_by_several) {
  make(1, false);
  EXPECT_EQ(hvd_nccl_double_calls("ncclCommInitRankScalable"), 0u);
  make(2, false);
  EXPECT_EQ(hvd_nccl_double_calls("ncclCommInitRankScalable"), 4u);
}

TEST_F(Communicators, do_without_NVLS_where_NCCL_can) {
  hvd_nccl_double_set_version(23100);
  const std::size_t before = hvd_nccl_double_without_nvls();
  make(1, false);
  EXPECT_EQ(hvd_nccl_double_without_nvls(), before);
  make(1, true);
  EXPECT_EQ(hvd_nccl_double_without_nvls(), before + 4);
}

}  // namespace
}  // namespace hvd::transport::over_nccl
