#pragma once
#include "base/settings/environment.hpp"

namespace hvd::schedulers {

// True for a task of a job of Flux, false for the job's script.
inline bool is_flux_task(const Environment& environment) {
  return environment.has("FLUX_TASK_RANK");
}

}  // namespace hvd::schedulers
