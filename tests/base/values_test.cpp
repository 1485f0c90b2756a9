// The small value types of base: results, bytes, environment, groups, deadlines, names.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>

#include "base/bytes.hpp"
#include "base/closed_set.hpp"
#include "base/collective.hpp"
#include "base/data_type.hpp"
#include "base/deadline.hpp"
#include "base/error_ids.hpp"
#include "base/group.hpp"
#include "base/panic.hpp"
#include "base/result.hpp"
#include "base/settings/environment.hpp"
#include "base/tensor_view.hpp"
#include "base/text/spelling.hpp"
#include "base/world.hpp"

namespace hvd {
namespace {

Result<std::unique_ptr<int>> half_of(int number) {
  if (number % 2 != 0) return Error(ErrorCode::invalid_argument, "odd");
  return std::make_unique<int>(number / 2);
}

Status quarter_of(int number, int& quarter) {
  auto half = half_of(number);
  HVD_RETURN_IF_ERROR(half);
  auto second = half_of(**half);
  HVD_RETURN_IF_ERROR(second);
  quarter = **second;
  return {};
}

TEST(Result, holds_a_value_that_cannot_be_copied) {
  auto result = half_of(4);
  ASSERT_TRUE(result);
  EXPECT_EQ(**result, 2);
}

TEST(Result, passes_an_error_up_with_its_origin) {
  int quarter = 0;
  ASSERT_TRUE(quarter_of(8, quarter));
  EXPECT_EQ(quarter, 2);
  Status status = quarter_of(6, quarter);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(status.error().message, "odd");
  EXPECT_STREQ(status.error().origin.function_name(), half_of(3).error().origin.function_name());
}

TEST(Error, has_the_first_id_that_it_was_given_and_shows_it_to_people) {
  const Error plain(ErrorCode::system, "a text that quotes [HVD1001] of another");
  EXPECT_EQ(plain.text(), plain.message);
  const Error first = identified(plain, "HVD2101");
  EXPECT_EQ(first.message, plain.message) << "the id is no part of the message";
  EXPECT_EQ(identified(first, "HVD2001").text(), plain.message + " [HVD2101]");
}

TEST(Error, ids_stand_once_in_the_table_in_order_below_known_headings) {
  std::vector<std::string> ids;
  for (const ErrorRow& row : error_rows()) ids.emplace_back(row.id);
  EXPECT_TRUE(std::ranges::is_sorted(ids));
  EXPECT_EQ(std::ranges::adjacent_find(ids), ids.end());
  for (const ErrorSection& section : error_sections()) EXPECT_TRUE(std::ranges::count(ids, section.first_id) == 1);
}

TEST(ResultDeathTest, panics_when_a_success_is_read_as_a_failure) {
  EXPECT_DEATH((void)half_of(4).error(), "the error of a Result that has a value was read");
  EXPECT_DEATH((void)Status().error(), "the error of a Status that is good was read");
}

TEST(ResultDeathTest, panics_when_a_failure_is_read_as_a_value) {
  EXPECT_DEATH((void)half_of(3).value(), "failed Result was read as a value: odd");
}

TEST(Result, tells_what_the_operating_system_said) {
  EXPECT_EQ(system_error("opening x", ENOENT).message, "opening x: No such file or directory");
}

TEST(Bytes, come_back_as_they_were_written) {
  Buffer buffer;
  ByteWriter writer(buffer);
  writer.put(std::int64_t{-5});
  writer.put_string("tensor");
  writer.put_string("");
  writer.put(2.5);
  ByteReader reader(buffer);
  EXPECT_EQ(reader.get<std::int64_t>(), -5);
  EXPECT_EQ(reader.get_string(), "tensor");
  EXPECT_EQ(reader.get_string(), "");
  EXPECT_EQ(reader.get<double>(), 2.5);
  EXPECT_TRUE(reader.ok());
  EXPECT_TRUE(reader.at_end());
}

TEST(Bytes, that_are_missing_are_noticed_at_the_end) {
  Buffer buffer;
  ByteWriter(buffer).put(std::uint32_t{1000});  // the length of a string whose bytes are missing
  ByteReader reader(buffer);
  EXPECT_EQ(reader.get_string(), "");
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.get<int>(), 0);
}

TEST(Environment, is_a_copy_of_the_process_environment) {
  ASSERT_EQ(setenv("HVD_TEST_VARIABLE", "a=b", 1), 0);
  auto environment = Environment::of_this_process();
  unsetenv("HVD_TEST_VARIABLE");
  EXPECT_EQ(environment.get("HVD_TEST_VARIABLE"), "a=b");
  environment.erase("HVD_TEST_VARIABLE");
  EXPECT_FALSE(environment.has("HVD_TEST_VARIABLE"));
  EXPECT_EQ(environment.get("HVD_TEST_VARIABLE"), std::nullopt);
}

TEST(Group, knows_the_seat_of_every_rank) {
  Group group{{Rank{4}, Rank{7}, Rank{9}}, Seat{1}};
  EXPECT_EQ(group.rank_at(group.me), Rank{7});
  EXPECT_EQ(group.seat_of(Rank{9}), Seat{2});
  EXPECT_EQ(group.seat_of(Rank{5}), Seat{-1});
  EXPECT_FALSE((Group{{Rank{1}}, Seat{-1}}).has_me());
}

TEST(Deadline, is_never_passed_when_there_is_none) {
  EXPECT_FALSE(Deadline::never().passed());
  EXPECT_GT(Deadline::never().left(), std::chrono::hours(24));
}

TEST(Deadline, has_no_time_left_once_it_is_passed) {
  auto past = Deadline::after(std::chrono::milliseconds(-1));
  EXPECT_TRUE(past.passed());
  EXPECT_EQ(past.left().count(), 0);
}

TEST(World, describes_a_rank_by_host_and_process) {
  World world;
  world.members = {{"n1", "n1", 10, "", ""}, {"n2", "n2", 11, "", ""}};
  EXPECT_EQ(describe(world, Rank{1}), "rank 1 (host n2, process 11)");
}

TEST(DataType, has_a_size_and_the_name_that_horovod_gives_it) {
  EXPECT_STREQ(name_of(DataType::boolean), "bool");
  EXPECT_STREQ(name_of(DataType::bf16), "bfloat16");
  EXPECT_STREQ(name_of(DataType::f64), "float64");
  TensorView view;
  view.count = 3;
  view.dtype = DataType::f16;
  EXPECT_EQ(view.bytes(), 6u);
  for (int i = 0; i < data_type_count; ++i) {
    std::string name = name_of(static_cast<DataType>(i));
    auto digits = name.find_first_of("0123456789");
    std::size_t bits = digits == std::string::npos ? 8 : std::stoul(name.substr(digits));
    EXPECT_EQ(size_of(static_cast<DataType>(i)) * 8, bits) << name;
  }
}

// A closed set, as base has several.
enum class Fruit { apple, pear };
constexpr std::optional<const char*> row_of(Fruit fruit) {
  switch (fruit) {
    case Fruit::apple: return "apple";
    case Fruit::pear: return "pear";
  }
  return std::nullopt;
}
static_assert(count_of<Fruit>([](Fruit fruit) { return row_of(fruit); }) == 2);  // a third one without a row fails

TEST(Panic, names_the_file_without_the_folder_of_the_machine_that_compiled_it) {
  EXPECT_DEATH(panic("impossible"), "internal error at values_test\\.cpp:[0-9]+: impossible");
}

TEST(Names, of_verbs_ops_and_errors_are_words_for_messages) {
  EXPECT_STREQ(name_of(Verb::reduce_scatter), "reducescatter");
  EXPECT_STREQ(name_of(ReduceOp::product), "product");
  EXPECT_STREQ(name_of(ErrorCode::system), "system error");
}

TEST(Spelling, counts_edits_and_swaps) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", "abc"), 0);
  EXPECT_EQ(edit_distance("CYCEL", "CYCLE"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Spelling, suggests_nothing_that_is_far_away) {
  std::string_view known[] = {"RANK", "SIZE", "TIMELINE"};
  EXPECT_EQ(nearest_name("TIMELIN", known), "TIMELINE");
  EXPECT_EQ(nearest_name("AUTOPILOT", known), "");
}

}  // namespace
}  // namespace hvd
