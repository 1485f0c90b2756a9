#pragma once
// Makes the result of --preflight: one page for people, or JSON for programs.
#include <string>
#include <vector>

#include "launcher/preflight/check.hpp"

namespace hvd::launcher::preflight {

struct Judged {
  const char* check;
  Verdict verdict;
};
std::vector<Judged> judge(const Allocation& allocation);
bool has_fault(const std::vector<Judged>& all);
std::string page_of(const std::vector<Judged>& all, const Allocation& allocation, double seconds);
std::string json_of(const std::vector<Judged>& all, const Allocation& allocation, double seconds);

}  // namespace hvd::launcher::preflight
