#include "launcher/options/secrets.hpp"

#include <algorithm>
#include <cctype>

namespace hvd::launcher {
namespace {

constexpr std::string_view hidden = "(not shown)";
constexpr std::size_t least_length = 6;  // shorter values such as "1", "yes" or "none" appear in texts by chance

bool is_of_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

void replace_all(std::string& text, const std::string& what) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += hidden.size())
    text.replace(at, what.size(), hidden);
}

// scheme://user:password@host
void hide_users_of_addresses(std::string& line) {
  for (std::size_t at = 0; (at = line.find("://", at)) != std::string::npos;) {
    at += 3;
    std::size_t end = std::min(line.find_first_of("/ \t\"'", at), line.size());
    std::size_t user_end = line.substr(at, end - at).rfind('@');
    if (user_end != std::string::npos) line.replace(at, user_end, hidden);
  }
}

// Returns the end of the secret that begins at `at`. After a colon the secret may have several words, as in
// "Authorization: Bearer …".
std::size_t end_of_value(const std::string& line, std::size_t at, bool is_rest_of_line) {
  if (at < line.size() && (line[at] == '"' || line[at] == '\''))
    return std::min(line.find(line[at], at + 1), line.size() - 1) + 1;
  if (is_rest_of_line) return line.size();
  while (at < line.size() && !is_blank(line[at])) ++at;
  return at;
}

void hide_named_values(std::string& line) {
  for (std::size_t at = 0; at < line.size();) {
    if (!is_of_name(line[at])) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    while (at < line.size() && is_of_name(line[at])) ++at;
    std::string_view name = std::string_view(line).substr(begin, at - begin);
    if (!names_a_secret(name)) continue;
    std::size_t after = at;
    if (after < line.size() && (line[after] == '"' || line[after] == '\'')) ++after;
    while (after < line.size() && is_blank(line[after])) ++after;
    bool is_assigned = after < line.size() && (line[after] == '=' || line[after] == ':');
    bool is_flag = name.starts_with("--") && after > at;
    if (!is_assigned && !is_flag) continue;
    bool is_rest_of_line = is_assigned && line[after] == ':';
    if (is_assigned) ++after;
    while (after < line.size() && is_blank(line[after])) ++after;
    if (after >= line.size() || line[after] == '{' || line[after] == '[') continue;
    line.replace(after, end_of_value(line, after, is_rest_of_line) - after, hidden);
    at = after + hidden.size();
  }
}

}  // namespace

bool names_a_secret(std::string_view name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  constexpr std::string_view parts[] = {"KEY",  "TOKEN",  "SECRET",  "PASS",      "PWD",    "CREDENTIAL",
                                        "AUTH", "COOKIE", "PRIVATE", "SIGNATURE", "BEARER", "JWT"};
  if (upper == "PWD" || upper == "OLDPWD") return false;  // PWD is the working directory, no password
  return std::any_of(std::begin(parts), std::end(parts),
                     [&](std::string_view part) { return upper.find(part) != std::string::npos; });
}

Secrets::Secrets(const Environment& environment) {
  for (const auto& [name, value] : environment.variables())
    if (names_a_secret(name) && value.size() >= least_length) values_.push_back(value);
  // Longer values are removed first, because one secret may be the beginning of another.
  std::sort(values_.begin(), values_.end(),
            [](const auto& one, const auto& other) { return one.size() > other.size(); });
}

std::string Secrets::taken_out_of(std::string_view text) const {
  std::string whole(text);
  for (const std::string& value : values_) replace_all(whole, value);
  std::string result;
  for (std::string_view rest = whole; !rest.empty();) {
    std::string line(rest.substr(0, rest.find('\n')));
    bool has_end = line.size() < rest.size();
    rest.remove_prefix(line.size() + (has_end ? 1 : 0));
    hide_users_of_addresses(line);
    hide_named_values(line);
    result += line + (has_end ? "\n" : "");
  }
  return result;
}

std::string variables_without_secrets(const Environment& environment, const std::vector<std::string_view>& prefixes) {
  std::string text;
  for (const auto& [name, value] : environment.variables()) {
    bool is_wanted = prefixes.empty() || std::any_of(prefixes.begin(), prefixes.end(),
                                                     [&](std::string_view prefix) { return name.starts_with(prefix); });
    if (!is_wanted) continue;
    text += name + "=";
    if (names_a_secret(name)) text += hidden;
    else
      for (char c : value) text += c == '\n' ? std::string("\\n") : std::string(1, c);
    text += "\n";
  }
  return text;
}

}  // namespace hvd::launcher
