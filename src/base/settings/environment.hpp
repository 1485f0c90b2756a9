#pragma once
// The process environment as a value, so that a test can pass a different one.
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace hvd {

class Environment {
 public:
  Environment() = default;
  explicit Environment(std::map<std::string, std::string, std::less<>> variables) : variables_(std::move(variables)) {}
  static Environment of_this_process();

  std::optional<std::string> get(std::string_view name) const;
  std::optional<int> number(std::string_view name) const;  // nothing if the value is not a number or is negative
  bool has(std::string_view name) const { return variables_.contains(name); }
  void set(std::string name, std::string value) { variables_[std::move(name)] = std::move(value); }
  void set_entry(std::string_view entry);  // sets a variable from "NAME=value"; ignores any other text
  void erase(std::string_view name) {
    if (auto found = variables_.find(name); found != variables_.end()) variables_.erase(found);
  }
  const std::map<std::string, std::string, std::less<>>& variables() const { return variables_; }

 private:
  std::map<std::string, std::string, std::less<>> variables_;
};

}  // namespace hvd
