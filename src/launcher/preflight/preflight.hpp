#pragma once
// horovodrun --preflight: checks the whole allocation before a job is started in it.
#include <span>
#include <string>

#include "launcher/targets/target.hpp"

namespace hvd::launcher::preflight {

inline constexpr int fault_found = 3;  // horovodrun's exit code

struct Outcome {
  std::string text;  // the page, or JSON
  bool has_fault = false;
};

// Starts a probe for each rank of the request, by a horovodrun with the same flags, and waits for what they tell: at
// most half a minute. `arguments` are horovodrun's own, without its name and the user's command.
Result<Outcome> run(const JobRequest& request, std::span<const char* const> arguments, bool as_json);

}  // namespace hvd::launcher::preflight
