#include "launcher/options/secrets.hpp"

#include <algorithm>
#include <cctype>

#include "launcher/options/secret_forms.hpp"

namespace hvd::launcher {
namespace {

constexpr std::string_view hidden = hidden_secret;
// Shorter values such as "1" or "yes" appear in texts by chance. Those of up to five letters are taken out only as
// whole words.
constexpr std::size_t least_length = 4, least_length_in_words = 6;

bool is_of_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

void replace_all(std::string& text, const std::string& what) {
  const bool as_word = what.size() < least_length_in_words;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos;) {
    const std::size_t end = at + what.size();
    if (as_word && ((at > 0 && is_of_name(text[at - 1])) || (end < text.size() && is_of_name(text[end])))) {
      at = end;
      continue;
    }
    text.replace(at, what.size(), hidden);
    at += hidden.size();
  }
}

std::string in_capitals(std::string_view name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  return upper;
}

// True for values of settings that are no secrets whatever their name: MAX_TOKENS=2048, TOKENIZERS_PARALLELISM=false.
bool is_everyday(std::string_view value) {
  constexpr std::string_view words[] = {"NONE", "TRUE", "FALSE", "NULL", "AUTO"};
  if (value.size() >= least_length_in_words) return false;
  return value.find_first_not_of("0123456789.") == std::string_view::npos ||
         std::ranges::find(words, in_capitals(value)) != std::end(words);
}

// PWD is the working directory of a shell, but a password in "Server=db;Pwd=…".
bool is_password(std::string_view name, std::string_view value) {
  return in_capitals(name) == "PWD" && !value.empty() &&
         std::string_view("/~.$").find(value.front()) == std::string::npos;
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
    const bool may_be_password = in_capitals(name) == "PWD";
    if (!names_a_secret(name) && !may_be_password) continue;
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
    if (may_be_password && !is_password(name, std::string_view(line).substr(after))) continue;
    line.replace(after, end_of_value(line, after, is_rest_of_line) - after, hidden);
    at = after + hidden.size();
  }
}

}  // namespace

bool names_a_secret(std::string_view name) {
  const std::string upper = in_capitals(name);
  constexpr std::string_view words[] = {"PAT", "CRED", "CREDS", "SIG", "PSK"};  // as PATH and SIGTERM are no secrets
  constexpr std::string_view parts[] = {"KEY",  "TOKEN",  "SECRET",  "PASS",      "PWD",    "CREDENTIAL",
                                        "AUTH", "COOKIE", "PRIVATE", "SIGNATURE", "BEARER", "JWT"};
  if (upper == "PWD" || upper == "OLDPWD") return false;  // PWD is the working directory, no password
  for (std::size_t at = 0; at < upper.size();) {
    const std::size_t end = std::min(upper.find_first_of("_-.", at), upper.size());
    if (std::ranges::find(words, std::string_view(upper).substr(at, end - at)) != std::end(words)) return true;
    at = end + 1;
  }
  return std::any_of(std::begin(parts), std::end(parts),
                     [&](std::string_view part) { return upper.find(part) != std::string::npos; });
}

Secrets::Secrets(const Environment& environment) {
  for (const auto& [name, value] : environment.variables())
    if (names_a_secret(name) && value.size() >= least_length && !is_everyday(value)) values_.push_back(value);
  // Longer values are removed first, because one secret may be the beginning of another.
  std::sort(values_.begin(), values_.end(),
            [](const auto& one, const auto& other) { return one.size() > other.size(); });
}

std::string Secrets::taken_out_of(std::string_view text) const {
  std::string whole(text);
  for (const std::string& value : values_) replace_all(whole, value);
  hide_private_keys(whole);
  std::string result;
  for (std::string_view rest = whole; !rest.empty();) {
    std::string line(rest.substr(0, rest.find('\n')));
    bool has_end = line.size() < rest.size();
    rest.remove_prefix(line.size() + (has_end ? 1 : 0));
    hide_users_of_addresses(line);
    hide_named_values(line);
    hide_known_forms(line);
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
