#include "api/job_around.hpp"

#include <algorithm>
#include <vector>

#include "native/posix/files/text_file.hpp"
#include "native/posix/machine/host_identity.hpp"
#include "native/posix/processes/ask_program.hpp"
#include "schedulers/selection/selection.hpp"

namespace hvd::api {
namespace {

using std::chrono::seconds;

schedulers::Sources sources_of(const Environment& environment, bool anew) {
  using namespace std::chrono;
  return {.environment = environment,
          .read_file = &posix::read_text,
          .ask = [](const std::vector<std::string>& command) { return posix::answer_of(command, seconds(5), false); },
          .has_program = [](const std::string&) { return false; },
          .now_s = duration_cast<seconds>(system_clock::now().time_since_epoch()).count(),
          .asks_anew = anew,
          .host = posix::host_name()};
}

}  // namespace

std::optional<seconds> time_left_of_job(const Environment& environment, bool anew) {
  const schedulers::Sources sources = sources_of(environment, anew);
  const schedulers::Around around = schedulers::scheduler_around(sources);
  if (!around.is_a_job()) return std::nullopt;
  auto left = around.scheduler->time_left(sources);
  return left ? std::optional(std::min<seconds>(*left, std::chrono::hours(24 * 3650))) : std::nullopt;
}

std::string name_of_job(const Environment& environment) {
  const schedulers::Sources sources = sources_of(environment, false);
  return schedulers::scheduler_around(sources).scheduler->job(sources);
}

}  // namespace hvd::api
