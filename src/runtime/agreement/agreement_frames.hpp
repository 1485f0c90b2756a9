#pragma once
// The frames that the leaders of two neighbouring nodes send each other (agreement.hpp), as bytes. A frame is a
// sequence of items. Each type of item defines its own form as bytes.
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "runtime/agreement/ballots.hpp"
#include "runtime/agreement/schedule.hpp"
#include "runtime/operations/op_name.hpp"

namespace hvd::runtime {

// ---- up the tree

struct PositionItem {                 // begins every frame that reports arrivals, names or requests
  std::uint64_t records = 0;          // number of records in the sender's log
  std::uint64_t read_by_subtree = 0;  // number of records that all ranks of the sender's subtree have read
  void write(ByteWriter& out) const;
  static PositionItem read(ByteReader& in, RecordStorage&);
};
struct ArrivalsItem {  // all members of the subtree have arrived at these slots
  std::span<const SlotId> slots;
  void write(ByteWriter& out) const;
  static ArrivalsItem read(ByteReader& in, RecordStorage& storage);
};
struct OpenedItem {  // somebody in the subtree has voted for this name
  OpNameView name;
  std::uint64_t seen = 0;  // number of records in the sender's log
  void write(ByteWriter& out) const;
  static OpenedItem read(ByteReader& in, RecordStorage&);
};
struct BallotItem {  // all members of the subtree have voted for this name
  OpNameView name;
  std::uint64_t seen = 0;  // number of records in the sender's log
  Opinions opinions;       // not empty; empty only if the bytes were broken
  void write(ByteWriter& out) const;
  static BallotItem read(ByteReader& in, RecordStorage&);
};
struct RequestItem {  // a request of a rank; an OpRequest travels as a ballot
  Rank from;
  ConstBytes request;
  void write(ByteWriter& out) const;
  static RequestItem read(ByteReader& in, RecordStorage&);
};
struct
    WaitingItem {  // whether a program of the subtree waits for an operation in device memory that is in no batch yet
  bool waits = false;
  void write(ByteWriter& out) const { out.put(waits); }
  static WaitingItem read(ByteReader& in, RecordStorage&) { return {in.get<bool>()}; }
};
struct AnswerItem {  // the subtree's answer to a QuestionItem
  std::uint32_t question = 0;
  // The ranks that are missing at each slot of the question, then those that are missing at each of its names.
  std::vector<std::vector<Rank>> missing;
  void write(ByteWriter& out) const;
  static AnswerItem read(ByteReader& in, RecordStorage&);
};

// ---- down the tree

struct RecordItem {
  ConstBytes record;
  void write(ByteWriter& out) const;
  static RecordItem read(ByteReader& in, RecordStorage&);
};
struct QuestionItem {          // which ranks are missing?
  std::uint32_t question = 0;  // number of the question
  std::vector<SlotId> slots;
  std::vector<OpName> names;
  void write(ByteWriter& out) const;
  static QuestionItem read(ByteReader& in, RecordStorage&);
};

// ---- in both directions

struct LostItem {
  Rank rank;
  std::string_view why;
  void write(ByteWriter& out) const;
  static LostItem read(ByteReader& in, RecordStorage&);
};

using Item = std::variant<PositionItem, ArrivalsItem, OpenedItem, BallotItem, RequestItem, RecordItem, LostItem,
                          QuestionItem, AnswerItem, WaitingItem>;

void write_item(ByteWriter& out, const Item& item);
// Reads the next item of a frame. The views in the result point into the frame and into `storage`.
Result<Item> read_item(ByteReader& in, RecordStorage& storage);
Error broken_frame();

}  // namespace hvd::runtime
