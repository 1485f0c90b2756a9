#include "launcher/options/secret_forms.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace hvd::launcher {
namespace {

constexpr std::string_view blanks = " \t", ends_of_words = " \t\"'`,;()<>\\";

bool is_letter_or_digit(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Replaces what is from `begin` to `end`. Returns where the line goes on.
std::size_t hide(std::string& text, std::size_t begin, std::size_t end) {
  text.replace(begin, end - begin, hidden_secret);
  return begin + hidden_secret.size();
}

struct TokenForm {
  std::string_view beginning;
  std::size_t least;       // the least number of characters after the beginning
  std::string_view marks;  // characters of the token besides letters and digits
};
constexpr TokenForm tokens[] = {
    {"ghp_", 16, ""},     {"gho_", 16, ""},         {"ghu_", 16, ""},      {"ghs_", 16, ""},  {"ghr_", 16, ""},
    {"hf_", 16, ""},      {"github_pat_", 16, "_"}, {"glpat-", 16, "_-."}, {"AKIA", 12, ""},  {"ASIA", 12, ""},
    {"xoxb-", 8, "-"},    {"xoxp-", 8, "-"},        {"xoxa-", 8, "-"},     {"xoxr-", 8, "-"}, {"xapp-", 8, "-"},
    {"sk-", 16, "_-"},    {"sk_live_", 16, ""},     {"pypi-", 16, "_-"},   {"npm_", 16, ""},  {"AIza", 24, "_-"},
    {"nvapi-", 16, "_-"}, {"eyJ", 16, "_-.="},      {"r8_", 16, ""},
};

void hide_tokens(std::string& line) {
  for (const TokenForm& form : tokens)
    for (std::size_t at = 0; (at = line.find(form.beginning, at)) != std::string::npos;) {
      const std::size_t after = at + form.beginning.size();
      std::size_t end = after;
      while (end < line.size() &&
             (is_letter_or_digit(line[end]) || form.marks.find(line[end]) != std::string_view::npos))
        ++end;
      // A name such as sk-learn-of-the-project has no digit.
      const bool has_digit = std::any_of(line.begin() + static_cast<std::ptrdiff_t>(after),
                                         line.begin() + static_cast<std::ptrdiff_t>(end), is_digit);
      const bool begins = at == 0 || !is_letter_or_digit(line[at - 1]);
      const bool is_token = begins && end - after >= form.least && (has_digit || form.marks.empty());
      at = is_token ? hide(line, at, end) : after;
    }
}

// The path of such an address lets everybody post there.
void hide_paths_of_webhooks(std::string& line) {
  for (std::string_view host : {"hooks.slack.com/", "discord.com/api/webhooks/", "webhook.office.com/"})
    for (std::size_t at = 0; (at = line.find(host, at)) != std::string::npos;) {
      at += host.size();
      at = hide(line, at, std::min(line.find_first_of(ends_of_words, at), line.size()));
    }
}

// curl -u user:password, --user user:password, -uuser:password
void hide_users_of_curl(std::string& line) {
  std::size_t at = line.find("curl");
  if (at == std::string::npos) return;
  while ((at = line.find_first_of(blanks, at)) != std::string::npos) {
    at = line.find_first_not_of(blanks, at);
    if (at == std::string::npos) return;
    for (std::string_view flag : {"--proxy-user", "--user", "-U", "-u"}) {
      if (line.compare(at, flag.size(), flag) != 0) continue;
      std::size_t begin = at + flag.size();
      if (begin < line.size() && line[begin] == '=') ++begin;
      else if (flag.size() > 2 && begin < line.size() && blanks.find(line[begin]) == std::string_view::npos) break;
      begin = std::min(line.find_first_not_of(blanks, begin), line.size());
      const char quote = begin < line.size() && (line[begin] == '"' || line[begin] == '\'') ? line[begin] : '\0';
      const std::size_t stop = quote != '\0' ? line.find(quote, begin + 1) : line.find_first_of(blanks, begin);
      const std::size_t end = stop == std::string::npos ? line.size() : stop + (quote != '\0' ? 1 : 0);
      if (begin < end) at = hide(line, begin, end);
      break;
    }
  }
}

// A long word with digits behind "key", "token" and the like, as in "appending key 0123…", and the password of a line
// of .netrc.
void hide_words_after_their_name(std::string& line) {
  constexpr std::size_t least = 24;
  std::string lower = line;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (std::string_view name : {"key", "token", "secret", "password", "bearer"})
    for (std::size_t at = 0; (at = lower.find(name, at)) != std::string::npos;) {
      at += name.size();
      const std::size_t begin = lower.find_first_not_of(blanks, at);
      if (begin == std::string::npos || begin == at) continue;
      const std::size_t end = std::min(lower.find_first_of(ends_of_words, begin), lower.size());
      const std::string_view word = std::string_view(lower).substr(begin, end - begin);
      const bool is_long = word.size() >= least && std::any_of(word.begin(), word.end(), is_digit) &&
                           word.find('/') == std::string_view::npos;
      const bool is_of_netrc = name == "password" && lower.find("login ") != std::string::npos;
      if (!is_long && !is_of_netrc) continue;
      hide(lower, begin, end);
      at = hide(line, begin, end);
    }
}

}  // namespace

void hide_private_keys(std::string& text) {
  constexpr std::string_view begin_mark = "-----BEGIN ", end_mark = "-----END ", name = "PRIVATE KEY-----";
  // The tail of a log may begin in the middle of a key.
  if (const std::size_t end = text.find(end_mark); end < text.find(begin_mark)) {
    const std::size_t dashes = text.find("-----", end + end_mark.size());
    if (dashes != std::string::npos && std::string_view(text).substr(0, dashes + 5).ends_with(name)) hide(text, 0, end);
  }
  for (std::size_t at = 0; (at = text.find(begin_mark, at)) != std::string::npos;) {
    at += begin_mark.size();
    const std::size_t dashes = text.find("-----", at);
    if (dashes == std::string::npos) return;
    const std::size_t begin = dashes + 5;
    if (!std::string_view(text).substr(at, begin - at).ends_with(name)) continue;
    at = hide(text, begin, std::min(text.find(end_mark, begin), text.size()));
  }
}

void hide_known_forms(std::string& line) {
  hide_tokens(line);
  hide_paths_of_webhooks(line);
  hide_users_of_curl(line);
  hide_words_after_their_name(line);
}

}  // namespace hvd::launcher
