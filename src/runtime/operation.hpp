#pragma once
// Prepared operations: what a program said about a tensor once, so that it need not say it again.
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/handle.hpp"
#include "runtime/signature.hpp"

namespace hvd::runtime {

struct Operation;

// Everything under one name. Lives until the runtime does, or until its only operation was transient and is done.
struct NameEntry {
  std::string name;
  std::atomic<bool> in_flight{false};                  // set by the submitting thread, cleared by the engine
  std::vector<std::unique_ptr<Operation>> operations;  // one per signature; guarded by the table

  // The engine's own:
  SlotId slot{-1};
  const Operation* slot_operation = nullptr;  // whose signature the slot was given for
  Operation* submitted = nullptr;             // the one in flight
};

// One use of an operation.
struct Submission {
  Operation* operation = nullptr;
  const void* input = nullptr;
  void* output = nullptr;
  std::int64_t first_dimension = 0;  // allgather
  HandleCell* handle = nullptr;
  std::uint32_t index = 0;  // among the operations of the handle
};

struct Operation {
  NameEntry* entry = nullptr;
  Signature signature;
  std::int64_t count = 0;  // elements (allgather: per row)
  int references = 0;      // transient ones: how often prepared and not yet discarded; guarded by the table

  // Called by the engine when it is done, at the same point of the schedule on all ranks; set before it is submitted.
  std::function<void()> when_done;

  // The engine's own, while in flight:
  Submission submission;
  std::size_t place = 0;   // in the engine's list of ops in flight
  bool arrived = false;    // at the entry's slot
  bool scheduled = false;  // part of a batch
};

class OperationTable {
 public:
  // Finds or makes. The pointer stays valid until the runtime ends, or for a transient one until discard().
  Operation* prepare(std::string_view name, Signature signature);
  // Null if nobody prepared anything under the name.
  NameEntry* find(std::string_view name);
  void discard(Operation* transient);

 private:
  std::mutex mutex_;
  std::unordered_map<std::string_view, std::unique_ptr<NameEntry>> entries_;  // keys are views of NameEntry::name
};

}  // namespace hvd::runtime
