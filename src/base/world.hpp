#pragma once
// The ranks of the job. The World is filled at the start and stays constant until the next start.
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.hpp"

namespace hvd {

struct Member {
  std::string host;  // name of the host, for messages
  std::string node;  // ranks with equal node ids can map each other's memory (an equal host name is not enough)
  std::int32_t pid = 0;
  std::string address;    // address of this rank's unix socket (an abstract name)
  std::string endpoints;  // addresses of this rank's TCP listener, "10.0.0.3:41234 [fd00::3]:41234"; empty without a
                          // listener
  // When its process was forked, and when it called init: seconds since 1970, by its host's clock.
  double forked_at_s = 0, called_init_at_s = 0;
  std::string process_space{};  // the space in which the rank's pid is valid: the machine, or a PID namespace on it (of
                                // a container)
  std::string devices{};  // what the rank tells about its processors and GPUs (connections/device_peers); empty on a
                          // machine without GPUs
  // Set only for this rank, because the values are equal on all ranks that have met.
  std::string release{};  // this rank's version of Horovod
  std::string knobs{};    // this rank's knobs that must be equal on all ranks, as lines NAME=value
};

struct World {
  Rank rank;
  std::vector<Member> members;  // the ranks of the job, in the order of their numbers
  std::uint32_t epoch = 0;      // the number of this start; it grows with every start in one process
  std::string job;              // name of the job in logs and messages
  std::string secret;           // known only to the processes of this job; rank 0 draws it, the bootstrap passes it on

  int size() const noexcept { return static_cast<int>(members.size()); }
  const Member& member(Rank r) const { return members[static_cast<std::size_t>(r.value)]; }
  const Member& me() const { return member(rank); }
  // True if this process can use the pid of rank `r`.
  bool can_see_process_of(Rank r) const {
    return member(r).node == me().node && member(r).process_space == me().process_space;
  }
};

// Returns text such as "rank 3 (host n12, process 4711)".
std::string describe(const World& world, Rank rank);

}  // namespace hvd
