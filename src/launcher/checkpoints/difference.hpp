#pragma once
// Compares two checkpoints.
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/reader.hpp"

namespace hvd::launcher {

// Returns a line for each entry that only one of them has, or that is not equal to the last bit. Times of saving are
// not compared.
Result<std::vector<std::string>> differences(const checkpoint::Reader& left, const checkpoint::Reader& right);

// Describes an entry in a few words: "float32 [300, 7]", "integer 1200", "group (dict)".
std::string words_for(const checkpoint::Entry& entry);

}  // namespace hvd::launcher
