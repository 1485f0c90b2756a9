// The table of recently used entries.
#include "base/recently_used.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace hvd {
namespace {

TEST(RecentlyUsed, forgets_what_was_not_used_for_longest) {
  RecentlyUsed<std::string, int> table(2);
  table.put("a", 1);
  table.put("b", 2);
  ASSERT_NE(table.find("a"), nullptr);
  table.put("c", 3);
  EXPECT_EQ(table.find("b"), nullptr);
  EXPECT_EQ(*table.find("a"), 1);
  EXPECT_EQ(*table.find("c"), 3);
  EXPECT_EQ(table.size(), 2u);
}

TEST(RecentlyUsed, frees_what_it_forgets) {
  RecentlyUsed<int, std::shared_ptr<int>> table(1);
  auto value = std::make_shared<int>(5);
  table.put(1, value);
  table.put(2, nullptr);
  EXPECT_EQ(value.use_count(), 1);
  table.put(3, value);
  table.clear();
  EXPECT_EQ(value.use_count(), 1);
  EXPECT_EQ(table.find(3), nullptr);
}

}  // namespace
}  // namespace hvd
