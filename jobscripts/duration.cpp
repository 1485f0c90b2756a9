#include "jobscripts/duration.hpp"

#include <cstdint>
#include <optional>

#include "base/text/number.hpp"

namespace hvd::jobscripts {

namespace {

constexpr std::int64_t longest = std::int64_t{365} * 24 * 3600;

struct Unit {
  char letter;
  std::int64_t seconds;
};
constexpr Unit units[] = {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}};

Error refuse(std::string_view text) {
  std::string message = "a time needs units, such as 2h, 90m or 1d12h, not '" + std::string(text) + "'";
  if (text.find(':') != std::string_view::npos)
    message += ": with colons it means minutes to one scheduler and hours to another";
  return Error(ErrorCode::invalid_argument, std::move(message));
}

std::string two_digits(std::int64_t number) {
  return (number < 10 ? "0" : "") + std::to_string(number);
}

}  // namespace

Result<std::chrono::seconds> parse_duration(std::string_view text) {
  std::string_view rest = text;
  std::int64_t seconds = 0;
  const Unit* next = std::begin(units);  // the units come in this order, each at most once
  while (!rest.empty()) {
    auto number = take_number<std::int64_t>(rest);
    if (!number || *number < 0 || *number > longest || rest.empty()) return refuse(text);
    while (next != std::end(units) && next->letter != rest.front()) ++next;
    if (next == std::end(units)) return refuse(text);
    seconds += *number * next++->seconds;
    rest.remove_prefix(1);
  }
  if (seconds == 0) return refuse(text);
  if (seconds > longest)
    return Error(ErrorCode::invalid_argument, "expected a time of at most a year, found '" + std::string(text) + "'");
  return std::chrono::seconds(seconds);
}

std::string hours_minutes_seconds(std::chrono::seconds time) {
  std::int64_t all = time.count();
  return two_digits(all / 3600) + ":" + two_digits(all / 60 % 60) + ":" + two_digits(all % 60);
}

std::string hours_minutes(std::chrono::seconds time) {
  std::int64_t minutes = (time.count() + 59) / 60;
  return std::to_string(minutes / 60) + ":" + two_digits(minutes % 60);
}

}  // namespace hvd::jobscripts
