#pragma once
// Who has taken the place in the job that this process's environment speaks of. A rank that has joined says so in
// HOROVOD_OWNER, which its children inherit: they must not join in its place, but may be ranks of another launch, which
// the rank, or a program of its, started.
#include <sys/types.h>

#include <string>

#include "base/environment.hpp"
#include "bootstrap/launch/launch_above.hpp"

namespace hvd::bootstrap {

inline constexpr const char* owner_variable = "HOROVOD_OWNER";

// For a process that has the place which `environment` speaks of; once it has left, children may have it.
std::string owner_mark(const Environment& environment, bool has_left = false);

// The process that has the place: 0 if nobody has, or it is this one.
pid_t owner_of_place(const Environment& environment, ListAncestors list_ancestors = &posix::ancestors_of_this_process);

// `all` without what speaks of the place of a rank around this launch, which has variables of its own.
Environment of_this_launch(const Environment& all, ListAncestors list_ancestors = &posix::ancestors_of_this_process);

}  // namespace hvd::bootstrap
