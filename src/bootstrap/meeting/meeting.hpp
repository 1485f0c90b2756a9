#pragma once
// How the ranks of a job learn about each other: each rank puts one card, all ranks fence, then each rank reads all
// cards.
#include <cstdint>
#include <string>

#include "base/deadline.hpp"
#include "base/result.hpp"
#include "base/settings/environment.hpp"
#include "base/world.hpp"
#include "bootstrap/bootstrap.hpp"

namespace hvd::bootstrap {

// The version of everything that ranks say to each other. Every change to that protocol raises the version. All ranks
// must have the same version.
inline constexpr std::uint32_t protocol_version = 7;

// Makes what this process tells the others: host (HOROVOD_HOSTNAME, or the kernel's name), node id, pid, release, and
// the given address.
Member introduce_myself(const Environment& environment, std::string address);

// Collective over the job, blocking. Fails if a rank has another release or other knobs. `epoch` is part of the keys:
// it is equal on all ranks and is used once in the life of a job.
Result<World> meet(Bootstrap& bootstrap, const Identity& identity, std::uint32_t epoch, const Member& me,
                   Deadline deadline);

}  // namespace hvd::bootstrap
