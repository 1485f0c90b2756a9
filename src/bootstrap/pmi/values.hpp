#pragma once
// Values of any bytes and any length as the short words that a PMI-1 server can store.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"

namespace hvd::bootstrap::pmi {

// Keys of PMI-1 have one space for all ranks, are short and have no blanks.
std::string key_of(Rank rank, std::string_view key, std::size_t piece);

// At least one piece, each of at most `longest` (32 or more) printable bytes; the first begins with the number of
// pieces.
std::vector<std::string> pieces_of(ConstBytes value, std::size_t longest);

// The number that the first piece begins with; nothing if it begins with none.
std::optional<std::size_t> number_of_pieces(std::string_view first);
// Nothing if a piece is damaged.
std::optional<Buffer> value_of(const std::vector<std::string>& pieces);

}  // namespace hvd::bootstrap::pmi
