#pragma once
// Makes the line about how long the start took, with the time of each part.
#include <optional>
#include <string>

#include "base/world.hpp"

namespace hvd::runtime {

// Times as rank 0 measured them, in seconds since 1970.
struct StartTimes {
  std::optional<double> launched_at;  // when horovodrun began, if horovodrun has told it
  double met_at = 0;                  // when rank 0 had the cards of all ranks
  std::optional<double> mpi_took;     // how long the start of the MPI took, if one is used
  double done_at = 0;
};

// Returns "started in 1.9 s: launch 0.3, imports 1.2 (slowest: rank 3 on n2), bootstrap 0.1, …". The clocks of hosts
// may differ a little; a part that would be negative becomes 0.
std::string describe_start(const World& world, const StartTimes& times);

}  // namespace hvd::runtime
