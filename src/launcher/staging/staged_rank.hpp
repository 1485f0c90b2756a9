#pragma once
// A rank whose program runs in a staged environment. horovodrun is started instead of the program. It finds the
// environment on this host and then executes the program in its own process.
#include <cstddef>
#include <string>
#include <vector>

namespace hvd::launcher::staging {

// The first argument of such a rank. The next arguments are the digest, the folder that the user named (or "-"), and
// the command.
inline constexpr const char* staged_rank_flag = "--as-rank-in-staged-environment";

std::vector<std::string> in_staged_environment(const std::string& horovodrun, const std::string& digest,
                                               const std::string& parent, const std::vector<std::string>& command);
// Returns the number of words before the user's program in such a command; 0 if the command is another one.
std::size_t words_of_staging(const std::vector<std::string>& command);
// `arguments` begin after the flag. Returns an exit code only if the program cannot be executed.
int run_staged_rank(char** arguments);

}  // namespace hvd::launcher::staging
