#pragma once
// What two checkpoints differ in.
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/reader.hpp"

namespace hvd::launcher {

// A line for each entry that is in one of them alone, or is not equal to the last bit. Times of saving do not count.
Result<std::vector<std::string>> differences(const checkpoint::Reader& left, const checkpoint::Reader& right);

// "float32 [300, 7]", "integer 1200", "group (dict)": what an entry is, in a few words.
std::string words_for(const checkpoint::Entry& entry);

}  // namespace hvd::launcher
