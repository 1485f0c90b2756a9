#include <gtest/gtest.h>

#include <chrono>

#include "transport/mpi/under_way.hpp"

namespace hvd::transport::over_mpi {
namespace {

using std::chrono::milliseconds;

TEST(MpiUnderWay, moves_for_a_moment_after_every_change) {
  const Clock::time_point start = Clock::now();
  UnderWay under_way;
  EXPECT_FALSE(under_way.is_moving(start));
  under_way.begin(start);
  under_way.begin(start);
  EXPECT_TRUE(under_way.is_moving(start + milliseconds(1)));
  EXPECT_FALSE(under_way.is_moving(start + milliseconds(3)));
  under_way.end(start + milliseconds(3));
  EXPECT_TRUE(under_way.is_moving(start + milliseconds(4)));
  under_way.end(start + milliseconds(4));
  EXPECT_FALSE(under_way.any());
  EXPECT_FALSE(under_way.is_moving(start + milliseconds(4)));
}

}  // namespace
}  // namespace hvd::transport::over_mpi
