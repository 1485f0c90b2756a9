#include "runtime/reports/start_report.hpp"

#include <algorithm>
#include <cstdio>

namespace hvd::runtime {
namespace {

std::string seconds(double span) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", std::max(span, 0.0));
  return text;
}

double imports_of(const Member& member) {
  return member.called_init_at_s - member.forked_at_s;
}

}  // namespace

std::string describe_start(const World& world, const StartTimes& times) {
  auto least = [](double (*value)(const Member&)) {
    return [value](const Member& left, const Member& right) { return value(left) < value(right); };
  };
  const auto& all = world.members;
  auto forked = [](const Member& member) { return member.forked_at_s; };
  auto called = [](const Member& member) { return member.called_init_at_s; };
  const auto [first_fork, last_fork] = std::minmax_element(all.begin(), all.end(), least(forked));
  const auto slowest = std::max_element(all.begin(), all.end(), least(imports_of));
  const double last_call = called(*std::max_element(all.begin(), all.end(), least(called)));
  const double mpi = times.mpi_took.value_or(0);
  std::string text =
      "started in " + seconds(times.done_at - times.launched_at.value_or(first_fork->forked_at_s)) + " s: ";
  if (times.launched_at) text += "launch " + seconds(last_fork->forked_at_s - *times.launched_at) + ", ";
  text += "imports " + seconds(imports_of(*slowest));
  if (all.size() > 1) text += " (slowest: rank " + std::to_string(slowest - all.begin()) + " on " + slowest->host + ")";
  // The time until the last rank called init is not part of the bootstrap: earlier ranks only waited for the imports of
  // the last one.
  text += ", bootstrap " + seconds(times.met_at - std::min(last_call, times.met_at));
  text += ", MPI " + (times.mpi_took ? seconds(mpi) : std::string("–"));
  return text + ", links " + seconds(times.done_at - times.met_at - mpi);
}

}  // namespace hvd::runtime
