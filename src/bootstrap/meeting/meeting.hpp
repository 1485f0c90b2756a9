#pragma once
// How the ranks of a job learn about each other: each puts one card, all fence, each reads all cards.
#include <cstdint>
#include <string>

#include "base/deadline.hpp"
#include "base/environment.hpp"
#include "base/result.hpp"
#include "base/world.hpp"
#include "bootstrap/bootstrap.hpp"

namespace hvd::bootstrap {

// The version of everything that ranks say to each other. Every change of any of it raises it; all ranks must have the
// same.
inline constexpr std::uint32_t protocol_version = 5;

// What this process tells the others: host (HOROVOD_HOSTNAME, or the kernel's name), node id, pid, release, and the
// address given.
Member introduce_myself(const Environment& environment, std::string address);

// Collective over the job, blocking. Refuses if a rank has another release or other knobs. `epoch` is equal on all
// ranks and used once in the life of a job: it is part of the keys.
Result<World> meet(Bootstrap& bootstrap, const Identity& identity, std::uint32_t epoch, const Member& me,
                   Deadline deadline);

}  // namespace hvd::bootstrap
