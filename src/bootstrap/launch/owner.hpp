#pragma once
// The process that has taken the place in the job that this environment describes. A rank that has joined names itself
// in HOROVOD_OWNER, which its children inherit: they must not join in its place. They may be ranks of another launch
// that the rank, or a program that it started, made.
#include <sys/types.h>

#include <string>

#include "base/environment.hpp"
#include "bootstrap/launch/launch_above.hpp"

namespace hvd::bootstrap {

inline constexpr const char* owner_variable = "HOROVOD_OWNER";

// The value for the process that has the place which `environment` describes. Once it has left, its children may take
// the place.
std::string owner_mark(const Environment& environment, bool has_left = false);

// The process that has the place; 0 if none has, or if it is this one.
pid_t owner_of_place(const Environment& environment, ListAncestors list_ancestors = &posix::ancestors_of_this_process);

// `all`, without the variables of a rank around this launch if the launch has variables of its own.
Environment of_this_launch(const Environment& all, ListAncestors list_ancestors = &posix::ancestors_of_this_process);

}  // namespace hvd::bootstrap
