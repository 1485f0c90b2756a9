#include "runtime/agreement/news_for_parent.hpp"

namespace hvd::runtime {

void NewsForParent::add_arrival(SlotId slot) {
  arrivals_.push_back(slot);
  is_in_arrivals_[static_cast<std::size_t>(slot.value)] = true;
}

void NewsForParent::withdraw_arrival(SlotId slot) {
  if (!is_in_arrivals_[static_cast<std::size_t>(slot.value)]) return;
  is_in_arrivals_[static_cast<std::size_t>(slot.value)] = false;
  std::erase(arrivals_, slot);
}

void NewsForParent::forget_opened(ProcessSetId set) {
  std::erase_if(opened_, [set](const OpName& name) { return name.set == set; });
}

bool NewsForParent::write(Buffer& frame, const PositionItem& position, const Ballots& ballots) {
  bool is_further = position.read_by_subtree > read_told_;
  if (arrivals_.empty() && opened_.empty() && others_.empty() && !(has_many_in_doubt() && is_further)) return false;
  frame.clear();
  ByteWriter writer(frame);
  write_item(writer, position);
  if (is_further) slots_in_doubt_ = 0;
  read_told_ = position.read_by_subtree;
  if (!arrivals_.empty()) {
    write_item(writer, ArrivalsItem{arrivals_});
    for (SlotId slot : arrivals_) is_in_arrivals_[static_cast<std::size_t>(slot.value)] = false;
    arrivals_.clear();
  }
  for (const OpName& name : opened_)
    if (ballots.is_open(name)) write_item(writer, OpenedItem{name, position.records});
  opened_.clear();
  writer.put_raw(others_.data(), others_.size());
  others_.clear();
  return true;
}

}  // namespace hvd::runtime
