#pragma once
// The processes above this one, as far as /proc shows them to this user.
#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "base/settings/environment.hpp"

namespace hvd::posix {

struct Ancestor {
  pid_t process = 0;
  std::string name;         // name of its program, cut by the kernel after 15 letters
  std::string title;        // argv[0], or what the process has written over it for ps
  Environment environment;  // the environment with which the process was started; empty for another user's process
};

// The list begins with the parent. It ends early if /proc hides another user's processes (hidepid). It is empty if
// /proc shows other process numbers than those of this process.
std::vector<Ancestor> ancestors_of_this_process();

std::size_t count_children(pid_t parent);

}  // namespace hvd::posix
