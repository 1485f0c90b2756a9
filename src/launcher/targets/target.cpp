#include "launcher/targets/target.hpp"

namespace hvd::launcher {

Result<JobOptions> plan_job(const Request& request) {
  return plan_with_agents(request);
}

}  // namespace hvd::launcher
