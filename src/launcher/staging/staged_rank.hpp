#pragma once
// A rank whose program runs in a staged environment: horovodrun stands in the rank's place, finds the environment on
// this host, and becomes the program.
#include <cstddef>
#include <string>
#include <vector>

namespace hvd::launcher::staging {

// The first argument; the digest, the wish for a folder (or "-") and the command follow.
inline constexpr const char* staged_rank_flag = "--as-rank-in-staged-environment";

std::vector<std::string> in_staged_environment(const std::string& horovodrun, const std::string& digest,
                                               const std::string& parent, const std::vector<std::string>& command);
// Returns how many words are before the program in such a command; 0 for another command.
std::size_t words_of_staging(const std::vector<std::string>& command);
// `arguments` begin after the flag. Returns (an exit code) only if the program cannot be executed.
int run_staged_rank(char** arguments);

}  // namespace hvd::launcher::staging
