#pragma once
// How the ranks of a job find each other.
#include <string>

namespace hvd::launcher {

struct WayToMeet {
  std::string bootstrap;  // its name
  std::string why;
  std::string why_no_pmix{};  // if one with PMIx would have been better, but is not to be had
};

}  // namespace hvd::launcher
