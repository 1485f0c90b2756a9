#include "base/text/number.hpp"

#include <gtest/gtest.h>

#include "base/settings/environment.hpp"

namespace hvd {
namespace {

TEST(Numbers, are_the_whole_of_a_text_or_its_beginning) {
  EXPECT_EQ(number_in<int>("-12"), -12);
  for (const char* text : {"", "x", "1x", " 1", "1 ", "+1", "99999999999"}) EXPECT_FALSE(number_in<int>(text)) << text;
  EXPECT_EQ(number_in<double>("2.5"), 2.5);
  EXPECT_EQ(leading_number<int>("7 tasks"), 7);
  EXPECT_FALSE(leading_number<int>("tasks: 7"));
}

TEST(Numbers, are_cut_off_the_text_that_begins_with_them) {
  std::string_view text = "3:rest";
  EXPECT_EQ(take_number<unsigned>(text), 3u);
  EXPECT_EQ(text, ":rest");
  EXPECT_FALSE(take_number<unsigned>(text));
  EXPECT_EQ(text, ":rest");
}

TEST(Numbers, of_a_variable_are_not_negative) {
  Environment environment({{"A", "4"}, {"B", "-4"}, {"C", "4x"}, {"D", ""}});
  EXPECT_EQ(environment.number("A"), 4);
  for (const char* name : {"B", "C", "D", "E"}) EXPECT_FALSE(environment.number(name)) << name;
}

}  // namespace
}  // namespace hvd
