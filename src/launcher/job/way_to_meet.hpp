#pragma once
// How the ranks of a job find each other.
#include <string>

namespace hvd::launcher {

struct WayToMeet {
  std::string bootstrap;  // its name
  std::string why;
  std::string why_no_pmix{};  // why it is not PMIx, although PMIx would come first
};

}  // namespace hvd::launcher
