#pragma once
// Every rank tells all others something, in whatever way the bootstrap does it best.
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/bootstrap.hpp"

namespace hvd::bootstrap {

// Collective over the job, blocking. A key is used once in the life of a process. Who is late is named, as far as can
// be found out.
Result<Cards> exchange(Bootstrap& bootstrap, const Identity& identity, std::string_view key, const Card& card,
                       Deadline deadline);

// "Of 64 ranks 15 did not come to the meeting: 4, 7, 9 and 12 more", of at least one.
std::string who_is_absent(const std::vector<int>& ranks, int size);
// Behind that: ". Do they still run, …"
extern const char* const what_to_ask;

}  // namespace hvd::bootstrap
