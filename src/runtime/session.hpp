#pragma once
// This process's membership in the job that somebody launched: finds the bootstrap, meets the others and starts a
// Runtime, as often as the program likes. Kept for the life of the process, since launchers do not like to be left and
// joined again.
#include <memory>
#include <optional>
#include <vector>

#include "base/environment.hpp"
#include "bootstrap/selection.hpp"
#include "runtime/runtime.hpp"

namespace hvd::runtime {

class Session {
 public:
  // Collective over the job.
  Result<std::unique_ptr<Runtime>> start(const Environment& environment);

 private:
  Status join(const Environment& environment, const Config& config);

  std::vector<bootstrap::Notice> notices_;  // of the choice
  std::optional<bootstrap::Chosen> chosen_;
  std::uint32_t epoch_ = 0;
};

}  // namespace hvd::runtime
