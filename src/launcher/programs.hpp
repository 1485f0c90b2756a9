#pragma once
// The programs of horovodrun that are not for users: processes that a job needs, such as the agent of a host, are
// horovodrun again, recognised by its first argument.
#include <optional>

namespace hvd::launcher {

// Runs the program that the arguments name, and returns its exit code. Empty if they are those of a user.
std::optional<int> run_inner_program(int count, char** arguments);

}  // namespace hvd::launcher
