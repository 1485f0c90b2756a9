#include "runtime/reports/start_report.hpp"

#include <gtest/gtest.h>

namespace hvd::runtime {
namespace {

World of_two() {
  World world;
  world.members.resize(2);
  world.members[0].host = "n1";
  world.members[0].forked_at_s = 100.2;
  world.members[0].called_init_at_s = 100.7;
  world.members[1].host = "n2";
  world.members[1].forked_at_s = 100.3;
  world.members[1].called_init_at_s = 101.5;
  return world;
}

TEST(StartReport, names_each_part_and_the_slowest_imports) {
  EXPECT_EQ(describe_start(of_two(), {100.0, 101.6, 0.2, 101.9}),
            "started in 1.9 s: launch 0.3, imports 1.2 (slowest: rank 1 on n2), bootstrap 0.1, MPI 0.2, links 0.1");
}

TEST(StartReport, leaves_out_what_is_not_known) {
  EXPECT_EQ(describe_start(of_two(), {std::nullopt, 101.6, std::nullopt, 101.7}),
            "started in 1.5 s: imports 1.2 (slowest: rank 1 on n2), bootstrap 0.1, MPI –, links 0.1");
}

TEST(StartReport, has_no_part_below_zero_where_clocks_differ) {
  World world = of_two();
  world.members[1].called_init_at_s += 5;
  world.members[1].forked_at_s += 5;
  EXPECT_EQ(describe_start(world, {100.0, 101.6, std::nullopt, 101.6}),
            "started in 1.6 s: launch 5.3, imports 1.2 (slowest: rank 1 on n2), bootstrap 0.0, MPI –, links 0.0");
}

}  // namespace
}  // namespace hvd::runtime
