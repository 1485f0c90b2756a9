#include "base/text/cut_text.hpp"

#include <gtest/gtest.h>

namespace hvd {
namespace {

TEST(CutText, leaves_out_a_character_that_does_not_fit) {
  EXPECT_EQ(cut_text("abc", 3), "abc");
  EXPECT_EQ(cut_text("abcd", 3), "abc");
  EXPECT_EQ(cut_text("ab\xc3\xa9", 3), "ab");
  EXPECT_EQ(cut_text("ab\xc3\xa9", 4), "ab\xc3\xa9");
  EXPECT_EQ(cut_text("a\xf0\x9f\x94\xa5", 4), "a");
  EXPECT_EQ(cut_text("\xf0\x9f\x94\xa5", 3), "");
}

TEST(CutText, cuts_what_is_no_utf8_where_it_has_to_be) {
  EXPECT_EQ(cut_text("\x80\x80\x80\x80\x80\x80", 5).size(), 5u);
}

}  // namespace
}  // namespace hvd
