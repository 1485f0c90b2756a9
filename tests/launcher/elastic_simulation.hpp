#pragma once
// An elastic job in virtual time: the real membership, over hosts, processes and a discovery that are simulated. A seed
// draws the settings, what happens, when, and how long each piece of news is on its way; news that take different ways
// overtake each other. Every step of the membership is held against the properties that broken_rules lists.
#include <cstdint>
#include <string>
#include <vector>

namespace hvd::launcher::simulation {

struct Outcome {
  std::vector<std::string> broken_rules;  // sentences with what was seen; empty if all is well
  std::string ending;                     // how the job ended
  int worlds = 0;
  int refused = 0;                   // asks of processes that were taken for lost
  std::vector<std::string> history;  // facts and steps in order
};

Outcome simulate(std::uint64_t seed);

}  // namespace hvd::launcher::simulation
