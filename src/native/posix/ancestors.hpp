#pragma once
// Processes above this one, as far as /proc shows them to this user.
#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "base/environment.hpp"

namespace hvd::posix {

struct Ancestor {
  pid_t process = 0;
  std::string name;         // of its program, cut by the kernel after 15 letters
  std::string title;        // what it was called by (argv[0]), or wrote over that for ps
  Environment environment;  // that it was started with, whatever it has set or unset since; empty where another user's
};

// The parent first. The list ends early if /proc hides another user's processes (hidepid). It is empty if /proc has
// other process numbers than this process.
std::vector<Ancestor> ancestors_of_this_process();

std::size_t count_children(pid_t parent);

}  // namespace hvd::posix
