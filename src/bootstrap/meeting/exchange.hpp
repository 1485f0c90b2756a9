#pragma once
// The exchange in which every rank tells all others something, in the way that suits the bootstrap best.
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/bootstrap.hpp"

namespace hvd::bootstrap {

// Collective over the job, blocking. A key is used once in the life of a process. The error names the ranks that are
// late, as far as they can be found out.
Result<Cards> exchange(Bootstrap& bootstrap, const Identity& identity, std::string_view key, const Card& card,
                       Deadline deadline);

// Returns a text like "Of 64 ranks 15 did not come to the meeting: 4, 7, 9 and 12 more". `ranks` has at least one rank.
std::string who_is_absent(const std::vector<int>& ranks, int size);
// The text that follows the sentence of who_is_absent(): ". Do they still run, …"
extern const char* const what_to_ask;

}  // namespace hvd::bootstrap
