#pragma once
// A probe is a process that horovodrun starts instead of a rank, by the same launcher and with the same binding and
// environment. It gathers facts, meets the other probes, measures links, and prints all facts on its standard output,
// in two lines.
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/preflight/check.hpp"

namespace hvd::launcher::preflight {

// The first argument of a probe. The next arguments are the job's name, its hosts and the program's Python (or "-").
inline constexpr const char* probe_flag = "--as-probe-of-a-rank";
std::vector<std::string> probe_command(const std::string& horovodrun, const std::string& job,
                                       const std::vector<std::string>& hosts, const std::string& python);
// `arguments` come after this flag.
int run_probe(char** arguments);

// Combines the lines of all probes.
class ProbeLines {
 public:
  // Returns whether the line is a probe's. Text that a launcher puts before it is ignored.
  bool take(std::string_view line);
  std::vector<Facts> probes() const;  // the facts of all probes, ordered by rank

 private:
  std::map<std::string, Facts> probes_;
};

}  // namespace hvd::launcher::preflight
