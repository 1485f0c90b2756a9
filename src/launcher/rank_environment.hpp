#pragma once
// The environment that a rank starts with.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "launcher/hosts.hpp"

namespace hvd::launcher {

// `own` without what another launcher (or horovodrun around this one) told us about our place in its job: a rank must
// not take that for its own.
Environment without_traces_of_launchers(const Environment& own);
// The same for this process's own environment, which libraries read for themselves. While it has a single thread.
void drop_traces_of_launchers();

struct RankVariables {
  Placement placement;
  int size = 1;
  int threads = 0;  // for OMP_NUM_THREADS where the user has not set it; 0: leave it unset
  std::map<std::string, std::string> from_flags;
  std::vector<std::pair<std::string, std::string>> wire_up;
};
// Lines NAME=value.
std::vector<std::string> environment_of(const Environment& cleaned, const RankVariables& variables);

}  // namespace hvd::launcher
