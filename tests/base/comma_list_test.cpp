#include "base/text/comma_list.hpp"

#include <gtest/gtest.h>

namespace hvd {
namespace {

using Items = std::vector<std::string>;

TEST(CommaList, has_the_items_between_the_commas_but_for_empty_ones) {
  EXPECT_EQ(items_of("eth0,ib0"), (Items{"eth0", "ib0"}));
  EXPECT_EQ(items_of(",eth0,,ib0,"), (Items{"eth0", "ib0"}));
  EXPECT_EQ(items_of("eth0"), Items{"eth0"});
  EXPECT_EQ(items_of(""), Items{});
  EXPECT_EQ(items_of(","), Items{});
}

TEST(CommaList, is_joined_with_nothing_before_the_first_and_after_the_last_item) {
  EXPECT_EQ(joined({"ssh", "-T", "", "n1"}, " "), "ssh -T  n1");
  EXPECT_EQ(joined({"", "n1"}, ","), ",n1");
  EXPECT_EQ(joined({"n1"}, ", "), "n1");
  EXPECT_EQ(joined({}, ", "), "");
}

}  // namespace
}  // namespace hvd
