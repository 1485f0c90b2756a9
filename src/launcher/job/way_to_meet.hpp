#pragma once
// How the ranks of a job find each other.
#include <string>

namespace hvd::launcher {

struct WayToMeet {
  std::string bootstrap;  // the bootstrap's name
  std::string why;
  std::string why_no_pmix{};  // why the bootstrap is not PMIx, which would come first
};

}  // namespace hvd::launcher
