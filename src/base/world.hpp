#pragma once
// Who takes part in the job: filled once at start, constant until the next one.
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.hpp"

namespace hvd {

struct Member {
  std::string host;  // as people know it; for messages
  std::string node;  // ranks with an equal node id can map each other's memory (an equal host name is not enough)
  std::int32_t pid = 0;
  std::string address;          // of this rank's unix socket (abstract name)
  std::string endpoints;        // of its TCP listener, "10.0.0.3:41234 [fd00::3]:41234"; empty without one
  std::string process_space{};  // the space of its pid: the machine's, or that of a PID namespace there (a container's)
  // Set only for this rank, since they are equal on all ranks that have met.
  std::string release{};  // of Horovod
  std::string knobs{};    // lines of NAME=value
};

struct World {
  Rank rank;
  std::vector<Member> members;  // by rank
  std::uint32_t epoch = 0;      // rises with every start within one process
  std::string job;              // names the job in logs and messages
  std::string secret;           // known only to this job's processes; rank 0 draws it, the bootstrap passes it on

  int size() const noexcept { return static_cast<int>(members.size()); }
  const Member& member(Rank r) const { return members[static_cast<std::size_t>(r.value)]; }
  const Member& me() const { return member(rank); }
  // Whether its pid means anything to this process.
  bool can_see_process_of(Rank r) const {
    return member(r).node == me().node && member(r).process_space == me().process_space;
  }
};

// "rank 3 (host n12, process 4711)"
std::string describe(const World& world, Rank rank);

}  // namespace hvd
