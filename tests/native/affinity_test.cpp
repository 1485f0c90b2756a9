#include "native/posix/machine/affinity.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <thread>

namespace hvd::posix {
namespace {

TEST(CpuMask, reads_and_writes_the_kernels_lists) {
  for (const char* list : {"", "0", "0-3", "0-3,8,10-11", "63-64", "1023-1025", "5,7,9"}) {
    auto mask = CpuMask::parse(list);
    ASSERT_TRUE(mask) << list;
    EXPECT_EQ(mask->to_string(), list);
  }
  EXPECT_EQ(CpuMask::parse("3,0-2\n")->to_string(), "0-3");
}

TEST(CpuMask, refuses_what_is_no_list) {
  for (const char* list :
       {",", "1,", ",1", "1-", "-1", "3-1", "a", "1 2", "0x3", "1--2", "99999999", "0-99999999999999999999"})
    EXPECT_FALSE(CpuMask::parse(list)) << list;
}

TEST(CpuMask, is_a_set_of_any_size) {
  CpuMask low = CpuMask::range(0, 3);
  CpuMask high = CpuMask::range(2000, 2001);
  CpuMask both = low | high;
  EXPECT_EQ(both.count(), 6);
  EXPECT_EQ(both.first(), 0);
  EXPECT_EQ(both.last(), 2001);
  EXPECT_EQ(both.next(3), 2000);
  EXPECT_EQ(both.next(2001), -1);
  EXPECT_TRUE(both.contains(high));
  EXPECT_FALSE(low.contains(both));
  EXPECT_FALSE(low.overlaps(high));
  EXPECT_EQ(both - high, low) << "equal sets are equal, however they came about";
  EXPECT_EQ(both & high, high);
  EXPECT_TRUE((low & high).empty());
  both.clear(2001);
  both.clear(2000);
  both.clear(5000);
  EXPECT_EQ(both, low);
  EXPECT_FALSE(CpuMask().test(0));
  EXPECT_EQ(CpuMask().last(), -1);
}

TEST(Affinity, binds_a_thread_and_nobody_else) {
  auto before = affinity();
  ASSERT_TRUE(before) << before.error().message;
  ASSERT_FALSE(before->empty());
  CpuMask one = CpuMask::range(before->last(), before->last());
  std::thread([&] {
    ASSERT_TRUE(set_affinity(one));
    EXPECT_EQ(*affinity(), one);
  }).join();
  EXPECT_EQ(*affinity(), *before);
}

TEST(Affinity, binds_the_threads_of_a_process_except_those_that_it_bound_itself) {
  const CpuMask before = *affinity_of_all_threads();
  if (before.count() < 2) GTEST_SKIP() << "one processor";
  const CpuMask first = CpuMask::range(before.first(), before.first());
  const CpuMask last = CpuMask::range(before.last(), before.last());
  std::barrier<> looked(4), bound(4);
  CpuMask of_other, of_own, of_child;
  auto body = [&](CpuMask& found) {
    looked.arrive_and_wait();
    bound.arrive_and_wait();
    found = *affinity();
  };
  std::thread other([&] { body(of_other); });
  std::thread own([&] {
    EXPECT_TRUE(set_affinity(last));
    body(of_own);
  });
  std::thread child([&] { std::thread([&] { body(of_child); }).join(); });
  looked.arrive_and_wait();
  EXPECT_EQ(*affinity_of_all_threads(), before);
  EXPECT_TRUE(bind_threads(before, first));
  EXPECT_EQ(*affinity(), first);
  bound.arrive_and_wait();
  for (std::thread* each : {&other, &own, &child}) each->join();
  EXPECT_EQ(of_other, first);
  EXPECT_EQ(of_own, last);
  EXPECT_EQ(of_child, first);
  EXPECT_TRUE(bind_threads(first, before));
  EXPECT_EQ(*affinity(), before);
}

TEST(Affinity, says_what_it_could_not_bind_to) {
  EXPECT_EQ(set_affinity(CpuMask()).error().code, ErrorCode::invalid_argument);
  auto status = set_affinity(CpuMask::range(100000, 100000));
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("100000"), std::string::npos) << status.error().message;
}

}  // namespace
}  // namespace hvd::posix
