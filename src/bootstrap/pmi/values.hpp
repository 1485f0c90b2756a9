#pragma once
// Encodes values of any bytes and any length as short words that a PMI-1 server can store.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"

namespace hvd::bootstrap::pmi {

// Makes a key of PMI-1. All ranks share one space of keys; keys are short and have no blanks.
std::string key_of(Rank rank, std::string_view key, std::size_t piece);

// Cuts an encoded value into one or more pieces. Each piece has at most `longest` (32 or more) printable bytes. The
// first piece begins with the number of pieces.
std::vector<std::string> pieces_of(ConstBytes value, std::size_t longest);

// Returns the number that the first piece begins with; nullopt if the piece does not begin with a number.
std::optional<std::size_t> number_of_pieces(std::string_view first);
// Returns nullopt if a piece is damaged.
std::optional<Buffer> value_of(const std::vector<std::string>& pieces);

}  // namespace hvd::bootstrap::pmi
