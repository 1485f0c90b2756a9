#pragma once
// What a node has to report to its parent in the tree of nodes (agreement.hpp) with its next frame.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "runtime/agreement/agreement_frames.hpp"
#include "runtime/agreement/ballots.hpp"
#include "runtime/operations/op_name.hpp"

namespace hvd::runtime {

class NewsForParent {
 public:
  explicit NewsForParent(std::size_t slots) : is_in_arrivals_(slots) { arrivals_.reserve(slots); }

  void add_arrival(SlotId slot);
  void withdraw_arrival(SlotId slot);
  void add_opened(OpNameView name) { opened_.emplace_back(name); }
  void forget_opened(ProcessSetId set);
  void add(const Item& item) {  // a ballot or a request
    ByteWriter writer(others_);
    write_item(writer, item);
  }

  // A slot was given or evicted. Only when the coordinator knows that all ranks have read this can the slot be used
  // again.
  void add_slot_in_doubt() { ++slots_in_doubt_; }
  // True if so many slots are in doubt that the parent must be told how far this subtree has read.
  bool has_many_in_doubt() const { return slots_in_doubt_ >= most_in_doubt; }

  // Writes all news as one frame, and begins anew. Returns false if there is no news. Names that are not open any more
  // are left out.
  bool write(Buffer& frame, const PositionItem& position, const Ballots& ballots);

 private:
  // The coordinator has 1024 spare slots. With this limit it learns which slots are free long before the spare ones run
  // out.
  static constexpr std::uint64_t most_in_doubt = 64;

  std::vector<SlotId> arrivals_;
  std::vector<bool> is_in_arrivals_;  // by slot
  std::vector<OpName> opened_;        // names that the parent does not know yet
  Buffer others_;
  std::uint64_t read_told_ = 0;       // the last PositionItem::read_by_subtree
  std::uint64_t slots_in_doubt_ = 0;  // since a frame last told the parent a higher number for read_by_subtree
};

}  // namespace hvd::runtime
