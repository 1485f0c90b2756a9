#include "schedulers/flux/json.hpp"

#include <algorithm>
#include <charconv>

namespace hvd::schedulers {
namespace {

constexpr int deepest = 32;

class Reader {
 public:
  explicit Reader(std::string_view text) : all_(text), rest_(text) {}

  Result<Json> read_all() {
    Json value;
    bool is_whole = read(value, 0);
    skip_blanks();
    if (is_whole && rest_.empty()) return value;
    return Error(ErrorCode::invalid_argument, "expected JSON, found something else at byte " +
                                                  std::to_string(all_.size() - rest_.size()) +
                                                  ": is the text cut off?");
  }

 private:
  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size())); }

  bool take(char letter) {
    skip_blanks();
    if (!rest_.starts_with(letter)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool take_word(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  bool read(Json& value, int depth) {
    skip_blanks();
    if (depth > deepest || rest_.empty()) return false;
    switch (rest_.front()) {
      case '{': return read_object(value, depth);
      case '[': return read_list(value, depth);
      case '"': value.kind = Json::Kind::text; return read_text(value.text);
      case 't': return take_word("true");
      case 'f': return take_word("false");
      case 'n': return take_word("null");
      default: return read_number(value);
    }
  }

  bool read_number(Json& value) {
    auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value.number);
    if (error != std::errc{}) return false;
    value.kind = Json::Kind::number;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return true;
  }

  // Names of hosts and numbers contain no escapes. Other texts keep their escapes as they are written.
  bool read_text(std::string& text) {
    rest_.remove_prefix(1);
    std::size_t end = 0;
    while (end < rest_.size() && rest_[end] != '"') end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) return false;
    text = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return true;
  }

  bool read_list(Json& value, int depth) {
    value.kind = Json::Kind::list;
    rest_.remove_prefix(1);
    if (take(']')) return true;
    do {
      if (!read(value.items.emplace_back(), depth + 1)) return false;
    } while (take(','));
    return take(']');
  }

  bool read_object(Json& value, int depth) {
    value.kind = Json::Kind::object;
    rest_.remove_prefix(1);
    if (take('}')) return true;
    do {
      skip_blanks();
      std::string name;
      if (!rest_.starts_with('"') || !read_text(name) || !take(':')) return false;
      if (!read(value.members[name], depth + 1)) return false;
    } while (take(','));
    return take('}');
  }

  std::string_view all_, rest_;
};

}  // namespace

const Json* Json::member(std::string_view name, Kind wanted) const {
  auto found = members.find(name);
  return found != members.end() && found->second.kind == wanted ? &found->second : nullptr;
}

Result<Json> read_json(std::string_view text) {
  return Reader(text).read_all();
}

}  // namespace hvd::schedulers
