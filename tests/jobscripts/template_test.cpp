#include "jobscripts/template.hpp"

#include <gtest/gtest.h>

namespace hvd::jobscripts {
namespace {

std::string filled(std::string_view text, const Values& values) {
  auto result = fill_in(text, values, "a template");
  return result ? *result : "error: " + result.error().message;
}

TEST(Templates, hold_values_as_they_are) {
  EXPECT_EQ(filled("a {{x}} and {{y}}.\n", {{"x", {"{{y}}"}}, {"y", {"2"}}}), "a {{y}} and 2.\n");
}

TEST(Templates, have_lines_only_if_there_is_a_value) {
  std::string_view text = "%if x\nx is {{x}}\n%end\n%if not x\nnone\n%end\n";
  EXPECT_EQ(filled(text, {{"x", {"1"}}}), "x is 1\n");
  EXPECT_EQ(filled(text, {}), "none\n");
}

TEST(Templates, have_lines_for_every_value_of_a_list) {
  std::string_view text = "%each x\n- {{it}}{{y}}\n%end\nend\n";
  EXPECT_EQ(filled(text, {{"x", {"1", "2"}}, {"y", {"!"}}}), "- 1!\n- 2!\nend\n");
  EXPECT_EQ(filled(text, {{"y", {"!"}}}), "end\n");
}

TEST(Templates, nest) {
  std::string_view text = "%if x\n%if y\nboth\n%end\n%if not y\n%each x\n{{it}}\n%end\n%end\n%end\n";
  EXPECT_EQ(filled(text, {{"x", {"1", "2"}}, {"y", {"3"}}}), "both\n");
  EXPECT_EQ(filled(text, {{"x", {"1", "2"}}}), "1\n2\n");
  EXPECT_EQ(filled(text, {{"y", {"3"}}}), "");
}

TEST(Templates, that_are_wrong_are_named_with_the_line) {
  for (const char* text : {"a\n{{x}}\n", "a\n{{x\n", "a\n%if x\nb\n", "a\n%end\n", "a\n%for x\n", "a\n%each x\n"}) {
    std::string answer = filled(text, {{"y", {"1"}}});
    EXPECT_TRUE(answer.starts_with("error: a template, line 2 ('")) << text << answer;
  }
}

}  // namespace
}  // namespace hvd::jobscripts
