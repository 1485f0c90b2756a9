// Checks that the clocks of all nodes agree, because logs, make, Kerberos and munge depend on them.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "launcher/preflight/check.hpp"
#include "launcher/preflight/link_measurement.hpp"

namespace hvd::launcher::preflight {
namespace {

constexpr double largest_skew_s = 0.5;

std::string seconds_text(double seconds) {
  char text[40];
  std::snprintf(text, sizeof text, "%.3f s", seconds);
  return text;
}

// Returns how far the node's clock is ahead of those of most partners; nothing if no clock was compared.
std::optional<double> skew_of(const Facts& probe) {
  std::vector<double> ahead;
  for (const LinkResult& each : link_results_in(probe.get("links")))
    if (each.fault.empty()) ahead.push_back(-each.clock_ahead_s);
  if (ahead.empty()) return std::nullopt;
  std::ranges::sort(ahead);
  // Of an even number of partners, the two in the middle count; the one that is nearer to this node's clock decides.
  if (ahead.size() % 2 == 1) return ahead[ahead.size() / 2];
  double one = ahead[ahead.size() / 2 - 1], other = ahead[ahead.size() / 2];
  return std::abs(one) < std::abs(other) ? one : other;
}

}  // namespace

const Check clock_check{
    "clocks", nullptr, [](const Allocation& allocation) -> Verdict {
      Verdict verdict;
      double largest = 0;
      bool is_first = true, is_known = false;
      const std::size_t nodes = allocation.by_node().size();
      for (const Facts& probe : allocation.probes) {
        if (!probe.has("links")) continue;
        auto skew = skew_of(probe);
        // With two nodes, the clock of the first rank's node is taken to be right.
        bool is_the_measure = nodes == 2 && is_first;
        is_first = false;
        if (!skew || is_the_measure) continue;
        is_known = true;
        largest = std::max(largest, std::abs(*skew));
        if (std::abs(*skew) > largest_skew_s)
          verdict.findings.push_back(
              {Severity::fault, probe.get("host"), "clocks that agree within " + seconds_text(largest_skew_s),
               "this one is " + seconds_text(std::abs(*skew)) + (*skew > 0 ? " ahead" : " behind"),
               "start chronyd or ntpd on that node (chronyc tracking)"});
      }
      verdict.summary = is_known
                            ? "apart by at most " + seconds_text(largest)
                            : std::string(nodes > 1 ? "not compared, since the ranks did not meet" : "a single node");
      return verdict;
    }};

}  // namespace hvd::launcher::preflight
