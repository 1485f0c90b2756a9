#pragma once
// The owner is the process that has taken the place in the job which this environment describes. A rank that has joined
// names itself in HOROVOD_OWNER. Its children inherit the variable and must not join in the rank's place. The children
// may be ranks of another launch, which the rank or a program that it started has made.
#include <sys/types.h>

#include <string>

#include "base/settings/environment.hpp"
#include "bootstrap/launch/launch_above.hpp"

namespace hvd::bootstrap {

inline constexpr const char* owner_variable = "HOROVOD_OWNER";

// Returns the value of HOROVOD_OWNER for this process, which has the place that `environment` describes. With
// `has_left` its children may take the place.
std::string owner_mark(const Environment& environment, bool has_left = false);

// Returns the owner of the place; 0 if the place has no owner, or if this process is the owner.
pid_t owner_of_place(const Environment& environment, ListAncestors list_ancestors = &posix::ancestors_of_this_process);

// Returns `all` without the variables of an outer rank, if this launch has variables of its own.
Environment of_this_launch(const Environment& all, ListAncestors list_ancestors = &posix::ancestors_of_this_process);

}  // namespace hvd::bootstrap
