#pragma once
// The arguments of a benchmark program: pairs of --name and value.
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace hvd::benchmark {

class Options {
 public:
  // Ends the program with a message if an argument is unknown. `known` has the names with their default values.
  Options(int argument_count, char** arguments, std::map<std::string, std::string> known);

  const std::string& text(const std::string& name) const { return values_.at(name); }
  double number(const std::string& name) const;
  std::size_t bytes(const std::string& name) const { return static_cast<std::size_t>(number(name)); }
  int count(const std::string& name) const { return static_cast<int>(number(name)); }
  // Returns the parts of a value that are separated by commas.
  std::vector<std::string> list(const std::string& name) const;
  bool lists(const std::string& name, const std::string& item) const;

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace hvd::benchmark
