#include "runtime/operation.hpp"

namespace hvd::runtime {

Operation* OperationTable::prepare(std::string_view name, Signature signature) {
  std::lock_guard lock(mutex_);
  auto found = entries_.find(name);
  if (found == entries_.end()) {
    auto entry = std::make_unique<NameEntry>();
    entry->name = name;
    std::string_view key = entry->name;
    found = entries_.emplace(key, std::move(entry)).first;
  }
  NameEntry& entry = *found->second;
  for (auto& operation : entry.operations) {
    if (operation->signature != signature) continue;
    ++operation->references;
    return operation.get();
  }
  auto operation = std::make_unique<Operation>();
  operation->entry = &entry;
  operation->count = signature.count();
  operation->references = 1;
  operation->signature = std::move(signature);
  return entry.operations.emplace_back(std::move(operation)).get();
}

NameEntry* OperationTable::find(std::string_view name) {
  std::lock_guard lock(mutex_);
  auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : found->second.get();
}

void OperationTable::discard(Operation* transient) {
  std::lock_guard lock(mutex_);
  if (--transient->references > 0) return;
  NameEntry& entry = *transient->entry;
  std::erase_if(entry.operations, [&](const auto& operation) { return operation.get() == transient; });
  if (entry.operations.empty()) {
    auto found = entries_.find(entry.name);
    auto owner = std::move(found->second);  // the key is a view into it
    entries_.erase(found);
  }
}

}  // namespace hvd::runtime
