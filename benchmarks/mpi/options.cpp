#include "mpi/options.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <utility>

namespace hvd::benchmark {

Options::Options(int argument_count, char** arguments, std::map<std::string, std::string> known)
    : values_(std::move(known)) {
  for (int i = 1; i < argument_count; i += 2) {
    std::string name = arguments[i];
    if (name.rfind("--", 0) == 0) name.erase(0, 2);
    auto found = values_.find(name);
    if (found == values_.end() || i + 1 == argument_count) {
      std::fprintf(stderr, "%s: expected pairs of --name value, found '%s'; names and defaults:\n", arguments[0],
                   arguments[i]);
      for (const auto& [known_name, value] : values_)
        std::fprintf(stderr, "  --%s %s\n", known_name.c_str(), value.c_str());
      std::exit(2);
    }
    found->second = arguments[i + 1];
  }
}

double Options::number(const std::string& name) const {
  const std::string& value = text(name);
  char* end = nullptr;
  double number = std::strtod(value.c_str(), &end);
  if (value.empty() || *end != '\0') {
    std::fprintf(stderr, "--%s: expected a number, found '%s'\n", name.c_str(), value.c_str());
    std::exit(2);
  }
  return number;
}

std::vector<std::string> Options::list(const std::string& name) const {
  std::vector<std::string> items;
  std::istringstream stream(text(name));
  for (std::string item; std::getline(stream, item, ',');) items.push_back(item);
  return items;
}

bool Options::lists(const std::string& name, const std::string& item) const {
  auto items = list(name);
  return std::find(items.begin(), items.end(), item) != items.end();
}

}  // namespace hvd::benchmark
