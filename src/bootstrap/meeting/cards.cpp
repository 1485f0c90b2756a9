// The format of a table: first the number of texts, then each text with its length before it. Then follow for each rank
// 2 × the number of its texts (+ 1 if its card is not whole) and the positions of these texts in the list. A number is
// written in groups of seven bits, lowest group first. All groups but the last have the highest bit set.
#include "bootstrap/meeting/cards.hpp"

namespace hvd::bootstrap {
namespace {

void put_number(Buffer& out, std::size_t number) {
  for (; number >= 0x80; number >>= 7) out.push_back(static_cast<std::byte>(number | 0x80));
  out.push_back(static_cast<std::byte>(number));
}

class TableReader {
 public:
  explicit TableReader(ConstBytes in) : in_(in) {}
  std::size_t number() {
    std::size_t value = 0;
    for (int shift = 0; shift < 56 && at_ < in_.size(); shift += 7) {
      auto byte = std::to_integer<std::size_t>(in_[at_++]);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    ok_ = false;
    return 0;
  }
  std::string_view text() {
    std::size_t size = number();
    if (size > in_.size() - at_) ok_ = false;
    if (!ok_) return {};
    at_ += size;
    return {reinterpret_cast<const char*>(in_.data() + at_ - size), size};
  }
  bool ok() const { return ok_; }
  bool at_end() const { return at_ == in_.size(); }
  std::size_t left() const { return in_.size() - at_; }

 private:
  ConstBytes in_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace

Buffer encode(const Card& card) {
  Buffer bytes;
  ByteWriter out(bytes);
  for (const std::string& text : card) out.put_string(text);
  return bytes;
}

CardView decode_card(ConstBytes bytes) {
  CardView card;
  ByteReader in(bytes);
  while (!in.at_end()) {
    std::string_view text = in.get_string();
    card.is_whole = in.ok();
    if (!in.ok()) break;
    card.texts.push_back(text);
  }
  return card;
}

void CardTable::add(Rank rank, const CardView& card) {
  Row& row = rows_[static_cast<std::size_t>(rank.value)];
  row.is_whole = card.is_whole;
  for (std::string_view text : card.texts) {
    auto [found, is_new] = numbers_.try_emplace(std::string(text), static_cast<std::uint32_t>(texts_.size()));
    if (is_new) texts_.emplace_back(text);
    row.texts.push_back(found->second);
  }
}

Buffer CardTable::encode() const {
  Buffer table;
  put_number(table, texts_.size());
  for (const std::string& text : texts_) {
    put_number(table, text.size());
    ByteWriter(table).put_raw(text.data(), text.size());
  }
  for (const Row& row : rows_) {
    put_number(table, row.texts.size() * 2 + (row.is_whole ? 0 : 1));
    for (std::uint32_t number : row.texts) put_number(table, number);
  }
  return table;
}

Result<Cards> Cards::decode(Buffer table, int ranks) {
  Cards cards;
  cards.table_ = std::move(table);
  TableReader in(cards.table_);
  std::vector<std::string_view> texts;
  std::size_t count = in.number();
  // A text takes at least one byte, so a damaged count cannot ask for much memory.
  if (count <= in.left()) texts.reserve(count);
  for (std::size_t i = 0; i < count && in.ok(); ++i) texts.push_back(in.text());
  bool ok = in.ok();
  for (int rank = 0; rank < ranks && ok; ++rank) {
    CardView card;
    std::size_t head = in.number();
    card.is_whole = head % 2 == 0;
    for (std::size_t i = 0; i < head / 2 && ok; ++i) {
      std::size_t number = in.number();
      ok = in.ok() && number < texts.size();
      if (ok) card.texts.push_back(texts[number]);
    }
    cards.rows_.push_back(std::move(card));
  }
  if (ok && in.ok() && in.at_end()) return cards;
  return Error(ErrorCode::mismatch, "expected the table with the cards of " + std::to_string(ranks) +
                                        " ranks, received " + std::to_string(cards.table_.size()) +
                                        " bytes that are not such a table; start the job again");
}

}  // namespace hvd::bootstrap
