#include "schedulers/grammar/host_lists.hpp"

#include <algorithm>
#include <cctype>
#include <map>

#include "base/text/number.hpp"

namespace hvd::schedulers {
namespace {

Error unreadable(std::string message) {
  return Error(ErrorCode::invalid_argument, std::move(message));
}

// Removes and returns the text before the next separator. Separators inside brackets do not count.
std::string_view take_item(std::string_view& text) {
  bool in_brackets = false;
  std::size_t end = 0;
  for (; end < text.size() && (in_brackets || text[end] != ','); ++end) {
    if (text[end] == '[') in_brackets = true;
    if (text[end] == ']') in_brackets = false;
  }
  std::string_view item = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return item;
}

std::string padded(std::uint32_t number, std::size_t width) {
  std::string digits = std::to_string(number);
  return std::string(width > digits.size() ? width - digits.size() : 0, '0') + digits;
}

// "01-03,7" becomes 01 02 03 7.
Result<std::vector<std::string>> numbers_in_brackets(std::string_view text) {
  std::vector<std::string> numbers;
  std::string whole(text);
  if (text.ends_with(',')) return unreadable("'[" + whole + "]' ends with a comma");
  do {
    std::string_view item = take_item(text);
    std::size_t dash = std::min(item.find('-'), item.size());
    auto first = number_in<std::uint32_t>(item.substr(0, dash));
    auto last = dash == item.size() ? first : number_in<std::uint32_t>(item.substr(dash + 1));
    if (!first || !last || *last < *first)
      return unreadable("'" + std::string(item) + "' in '[" + whole + "]' is no range of numbers");
    if (*last - *first >= most_hosts - numbers.size())
      return unreadable("'[" + whole + "]' has more than " + std::to_string(most_hosts) + " numbers");
    for (std::uint32_t number = *first;; ++number) {
      numbers.push_back(padded(number, dash));
      if (number == *last) break;
    }
  } while (!text.empty());
  return numbers;
}

// Appends each of the endings to each of the names.
Status multiply(std::vector<std::string>& names, const std::vector<std::string>& endings, std::string_view item) {
  if (names.size() * endings.size() > most_hosts)
    return unreadable("'" + std::string(item) + "' is more than " + std::to_string(most_hosts) + " hosts");
  std::vector<std::string> longer;
  longer.reserve(names.size() * endings.size());
  for (const std::string& name : names)
    for (const std::string& ending : endings) longer.push_back(name + ending);
  names = std::move(longer);
  return {};
}

Result<std::vector<std::string>> expand_item(std::string_view item) {
  std::vector<std::string> names = {""};
  for (std::string_view rest = item; !rest.empty();) {
    std::size_t open = std::min(rest.find_first_of("[]"), rest.size());
    HVD_RETURN_IF_ERROR(multiply(names, {std::string(rest.substr(0, open))}, item));
    rest.remove_prefix(open);
    if (rest.empty()) break;
    std::size_t close = rest.find(']');
    if (rest.front() == ']' || close == std::string_view::npos)
      return unreadable("a bracket of '" + std::string(item) + "' has no counterpart: is the list cut off?");
    auto numbers = numbers_in_brackets(rest.substr(1, close - 1));
    if (!numbers) return std::move(numbers.error());
    HVD_RETURN_IF_ERROR(multiply(names, *numbers, item));
    rest.remove_prefix(close + 1);
  }
  return names;
}

}  // namespace

bool is_host_name(std::string_view text) {
  return !text.empty() && text.size() < 256 && text.front() != '-' &&
         std::ranges::all_of(text, [](unsigned char letter) {
           return std::isalnum(letter) != 0 || letter == '_' || letter == '.' || letter == '-';
         });
}

bool is_same_host(std::string_view a, std::string_view b) {
  if (a == b) return true;
  bool has_domain = a.find('.') != std::string_view::npos, other_has = b.find('.') != std::string_view::npos;
  return has_domain != other_has && a.substr(0, a.find('.')) == b.substr(0, b.find('.'));
}

Error in(const std::string& source, Error error) {
  error.message = source + ": " + error.message;
  return error;
}

Result<std::vector<std::string>> expand_hosts(std::string_view text) {
  std::vector<std::string> hosts;
  if (text.empty()) return unreadable("the list of hosts is empty");
  bool is_cut_off = text.ends_with(',');
  while (!text.empty()) {
    std::string_view item = take_item(text);
    auto names = expand_item(item);
    if (!names) return std::move(names.error());
    for (std::string& name : *names) {
      if (!is_host_name(name)) return unreadable("'" + std::string(item) + "' is no name of a host");
      hosts.push_back(std::move(name));
    }
    if (hosts.size() > most_hosts) return unreadable("more than " + std::to_string(most_hosts) + " hosts");
  }
  if (is_cut_off) return unreadable("the list of hosts ends with a comma: is it cut off?");
  return hosts;
}

Result<std::vector<int>> numbers_per_node(std::string_view text) {
  std::vector<int> numbers;
  Error malformed = unreadable("'" + std::string(text) + "' is no list of numbers by node, as 72(x2),36 is");
  do {
    auto number = take_number<int>(text), times = std::optional(1);
    if (text.starts_with("(x")) {
      text.remove_prefix(2);
      times = take_number<int>(text);
      if (!text.starts_with(')')) return malformed;
      text.remove_prefix(1);
    }
    if (!number || *number < 0 || *number > most_slots || !times || *times < 1) return malformed;
    if (static_cast<std::size_t>(*times) > most_hosts - numbers.size()) return malformed;
    numbers.insert(numbers.end(), static_cast<std::size_t>(*times), *number);
    if (text.empty()) return numbers;
    if (!text.starts_with(',')) return malformed;
    text.remove_prefix(1);
  } while (true);
}

Result<std::vector<int>> numbers_in(std::string_view text) {
  auto texts = numbers_in_brackets(text);
  if (!texts) return std::move(texts.error());
  std::vector<int> numbers;
  for (const std::string& each : *texts) {
    auto number = number_in<int>(each);
    if (!number) return unreadable("'" + each + "' is too large a number");
    numbers.push_back(*number);
  }
  return numbers;
}

Result<std::vector<Host>> hosts_by_lines(std::string_view text) {
  std::vector<Host> hosts;
  std::map<std::string_view, std::size_t> places;
  while (!text.empty()) {
    std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    if (!is_host_name(line)) return unreadable("the line '" + std::string(line) + "' is no name of a host");
    auto [place, is_new] = places.try_emplace(line, hosts.size());
    if (is_new) hosts.push_back({std::string(line)});
    if (++hosts[place->second].slots > most_slots)
      return unreadable("the host '" + std::string(line) + "' has too many lines");
  }
  if (hosts.empty()) return unreadable("expected at least one host, found none");
  return hosts;
}

}  // namespace hvd::schedulers
