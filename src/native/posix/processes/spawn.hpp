#pragma once
// Starts another program.
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/settings/environment.hpp"

namespace hvd::posix {

// The standard descriptors of a program: descriptors of this process, or one of the constants.
struct Streams {
  static constexpr int nothing = -1;    // /dev/null
  static constexpr int inherited = -2;  // that of this process
  int input = nothing, output = nothing, errors = nothing;
};

// A program that leads a process group of its own can be ended with all that it starts. It gets the usual signals, also
// those that the caller has blocked or ignores.
enum class ProcessGroup { of_caller, own };

// Starts the program and sets its process id. A program without a slash in its name is looked for along PATH. With a
// null `environment` it gets that of this process. Returns 0, or the value of errno of the failure.
int spawn(pid_t& process, const std::vector<std::string>& command, const Streams& streams,
          const Environment* environment = nullptr, ProcessGroup group = ProcessGroup::of_caller);

}  // namespace hvd::posix
