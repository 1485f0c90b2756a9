#include "runtime/operations/operation.hpp"

namespace hvd::runtime {

Operation* OperationTable::prepare(OpNameView name, Signature signature) {
  std::lock_guard lock(mutex_);
  auto found = entries_.find(name);
  if (found == entries_.end()) {
    auto entry = std::make_unique<NameEntry>();
    entry->set = name.set;
    entry->name = name.name;
    OpNameView key{entry->set, entry->name};
    found = entries_.emplace(key, std::move(entry)).first;
  }
  NameEntry& entry = *found->second;
  if (auto known = entry.operations.find(signature); known != entry.operations.end()) {
    hold(**known);
    ++(*known)->starts;
    return known->get();
  }
  auto operation = std::make_unique<Operation>();
  operation->entry = &entry;
  operation->number = next_number_++;
  operation->count = signature.count();
  operation->references = 1;
  operation->starts = 1;
  operation->signature = std::move(signature);
  ++size_;
  return entry.operations.insert(std::move(operation)).first->get();
}

Operation* OperationTable::submitted(OpNameView name) const {
  std::lock_guard lock(mutex_);
  auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : found->second->submitted;
}

void OperationTable::release(Operation& operation) {
  // No lock is needed while there are other references. Only the last one needs the lock, because prepare() may find
  // the operation until then.
  int held = operation.references.load(std::memory_order_relaxed);
  while (held > 1)
    if (operation.references.compare_exchange_weak(held, held - 1, std::memory_order_acq_rel)) return;
  std::lock_guard lock(mutex_);
  if (operation.references.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  --size_;
  NameEntry& entry = *operation.entry;
  entry.operations.erase(entry.operations.find(operation.signature));
  if (!entry.operations.empty()) return;
  auto found = entries_.find(OpNameView(entry.set, entry.name));
  auto owner = std::move(found->second);  // moved out first, because the key is a view into the object
  entries_.erase(found);
}

}  // namespace hvd::runtime
