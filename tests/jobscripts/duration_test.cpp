#include "jobscripts/duration.hpp"

#include <gtest/gtest.h>

namespace hvd::jobscripts {
namespace {

using std::chrono::seconds;

TEST(Durations, are_numbers_with_units) {
  EXPECT_EQ(*parse_duration("2h"), seconds(7200));
  EXPECT_EQ(*parse_duration("90m"), seconds(5400));
  EXPECT_EQ(*parse_duration("1d12h"), seconds(36 * 3600));
  EXPECT_EQ(*parse_duration("1h30m"), seconds(5400));
  EXPECT_EQ(*parse_duration("45s"), seconds(45));
}

TEST(Durations, without_units_are_refused) {
  for (const char* text :
       {"", "2", "120", "h", "2 h", "-1h", "1.5h", "2x", "0h", "30m1h", "1h1h", "9999999999999999999h", "500d", "2h "})
    EXPECT_FALSE(parse_duration(text)) << text;
}

TEST(Durations, with_colons_are_refused_because_schedulers_disagree_about_them) {
  for (const char* text : {"2:00", "02:00:00", "1-12:00"}) {
    auto time = parse_duration(text);
    ASSERT_FALSE(time) << text;
    EXPECT_NE(time.error().message.find("minutes to one scheduler"), std::string::npos) << time.error().message;
  }
}

TEST(Durations, are_written_as_schedulers_read_them) {
  EXPECT_EQ(hours_minutes_seconds(seconds(7200)), "02:00:00");
  EXPECT_EQ(hours_minutes_seconds(seconds(26 * 3600 + 61)), "26:01:01");
  EXPECT_EQ(hours_minutes(seconds(7200)), "2:00");
  EXPECT_EQ(hours_minutes(seconds(61)), "0:02");
}

}  // namespace
}  // namespace hvd::jobscripts
