#include "jobscripts/template.hpp"

#include <optional>

namespace hvd::jobscripts {

namespace {

class Filling {
 public:
  Filling(std::string_view text, const Values& values, std::string_view name) : values_(values), name_(name) {
    while (!text.empty()) {
      std::size_t end = text.find('\n');
      lines_.push_back(text.substr(0, end));
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
  }

  Result<std::string> all() {
    std::size_t next = 0;
    HVD_RETURN_IF_ERROR(block(next, true, nullptr));
    if (next < lines_.size()) return wrong(next, "there is no %if or %each before this %end");
    return std::move(text_);
  }

 private:
  // Handles the lines up to the %end of this block, or to the end of the text.
  Status block(std::size_t& next, bool is_wanted, const std::string* it) {
    for (; next < lines_.size(); ++next) {
      std::string_view line = lines_[next];
      if (line == "%end") return {};
      if (line.starts_with("%if ")) HVD_RETURN_IF_ERROR(condition(next, line.substr(4), is_wanted, it));
      else if (line.starts_with("%each ")) HVD_RETURN_IF_ERROR(each(next, line.substr(6), is_wanted));
      else if (line.starts_with('%')) return wrong(next, "expected %if, %each or %end");
      else if (is_wanted) HVD_RETURN_IF_ERROR(plain(next, line, it));
    }
    return {};
  }

  Status condition(std::size_t& next, std::string_view name, bool is_wanted, const std::string* it) {
    bool negated = name.starts_with("not ");
    if (negated) name.remove_prefix(4);
    return inner(next, is_wanted && (values_of(name) == nullptr) == negated, it);
  }

  Status each(std::size_t& next, std::string_view name, bool is_wanted) {
    const auto* values = values_of(name);
    std::size_t first = next;
    if (values == nullptr || !is_wanted) return inner(next, false, nullptr);
    for (const std::string& value : *values) {
      next = first;
      HVD_RETURN_IF_ERROR(inner(next, true, &value));
    }
    return {};
  }

  Status inner(std::size_t& next, bool is_wanted, const std::string* it) {
    std::size_t first = next++;
    HVD_RETURN_IF_ERROR(block(next, is_wanted, it));
    if (next == lines_.size()) return wrong(first, "its %end is missing");
    return {};
  }

  Status plain(std::size_t number, std::string_view line, const std::string* it) {
    while (true) {
      std::size_t open = line.find("{{");
      text_ += line.substr(0, open);
      if (open == std::string_view::npos) break;
      std::size_t close = line.find("}}", open);
      if (close == std::string_view::npos) return wrong(number, "its }} is missing");
      std::string_view name = line.substr(open + 2, close - open - 2);
      const auto* values = values_of(name);
      if (name == "it" && it != nullptr) text_ += *it;
      else if (values != nullptr) text_ += values->front();
      else return wrong(number, "there is no value for '" + std::string(name) + "'");
      line.remove_prefix(close + 2);
    }
    text_ += '\n';
    return {};
  }

  // Returns null if there is none.
  const std::vector<std::string>* values_of(std::string_view name) const {
    auto found = values_.find(name);
    return found == values_.end() || found->second.empty() ? nullptr : &found->second;
  }

  Error wrong(std::size_t number, const std::string& why) const {
    return Error(ErrorCode::invalid_argument, std::string(name_) + ", line " + std::to_string(number + 1) + " ('" +
                                                  std::string(lines_[number]) + "'): " + why);
  }

  const Values& values_;
  std::string_view name_;
  std::vector<std::string_view> lines_;
  std::string text_;
};

}  // namespace

Result<std::string> fill_in(std::string_view text, const Values& values, std::string_view name) {
  return Filling(text, values, name).all();
}

}  // namespace hvd::jobscripts
