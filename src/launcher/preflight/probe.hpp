#pragma once
// A probe stands in the place of a rank: started by the same launcher, with the same binding and environment. It looks
// around, meets the others, measures links, and tells all of that on its standard output, in two lines.
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/preflight/check.hpp"

namespace hvd::launcher::preflight {

// The first argument of horovodrun as a probe; job's name, its hosts and the program's Python (or "-") follow.
inline constexpr const char* probe_flag = "--as-probe-of-a-rank";
std::vector<std::string> probe_command(const std::string& horovodrun, const std::string& job,
                                       const std::vector<std::string>& hosts, const std::string& python);
// `arguments` come after the flag.
int run_probe(char** arguments);

// Puts the lines of all probes together.
class ProbeLines {
 public:
  // Whether the line is one of a probe. What a launcher puts before it does not matter.
  bool take(std::string_view line);
  std::vector<Facts> probes() const;  // by rank

 private:
  std::map<std::string, Facts> probes_;
};

}  // namespace hvd::launcher::preflight
