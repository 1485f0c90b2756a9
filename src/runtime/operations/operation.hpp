#pragma once
// Prepared operations: a program describes a tensor once and then uses the description again.
//
// An operation lives as long as something holds it: the program (from prepare to release), a use that is under way, or
// its slot. So the table contains only operations that are held or agreed. It does not grow with every request of a
// program.
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/operations/handle.hpp"
#include "runtime/operations/op_name.hpp"
#include "runtime/operations/signature.hpp"

namespace hvd::runtime {

struct Operation;

// How a use of an operation has ended, and which one it is.
struct Ended {
  const Error* error = nullptr;
  Handles::Number handle = 0;
  std::uint32_t index = 0;  // among the operations of the handle
};

// What is called when a use of an operation has ended (runtime/operations/callbacks). `tell` casts the caller's
// `function` to its real type and calls it.
struct Callback {
  void (*tell)(const Callback& callback, const Ended& ended) = nullptr;
  void (*function)() = nullptr;
  void* context = nullptr;
  void* owner = nullptr;           // the runtime, as the caller knows it
  bool on_its_own_thread = false;  // on the thread for callbacks, not on the engine's
};

// The program's function that gives memory for a result whose size was not known. Null: the runtime allocates it. The
// engine's thread calls it.
struct Allocate {
  void* (*function)(void* context, int dimensions, const std::int64_t* shape, std::size_t bytes) = nullptr;
  void* context = nullptr;
};

// One use of an operation, as the program asks for it.
struct Start {
  Operation* operation = nullptr;
  const void* input = nullptr;
  void* output = nullptr;
  std::int64_t first_dimension = 0;  // rows of this use, if their number may differ between ranks
  // alltoall: the rows for each seat. Empty means equal parts. The caller's memory, which is read until submit()
  // returns.
  std::span<const std::int64_t> splits{};
  Callback on_done{};
  Allocate allocate{};
  Stream stream{};  // the caller's stream, for tensors in device memory; the result is ordered on it

  bool has_extras() const {
    return stream || on_done.tell != nullptr || allocate.function != nullptr || !splits.empty();
  }
};

// A use that has been submitted. It is small, because its memory moves from the caller's core to the engine's core.
struct Submission {
  Operation* operation = nullptr;
  const void* input = nullptr;
  void* output = nullptr;
  std::int64_t first_dimension = 0;
  HandleCell* handle = nullptr;  // null if other ranks submitted the op and this rank has joined
  std::uint32_t index = 0;       // index of the use among the operations of the handle
};

// Properties that only a few uses have.
struct Extras {
  std::vector<std::int64_t> splits;
  Callback on_done;
  Allocate allocate;
  Stream stream;
  Event ready;  // the point of that stream at which the operation was submitted
  Event rest;   // the end of what a batch that has failed left on its device; the engine writes it
};

struct NameEntry;

struct Operation {
  NameEntry* entry = nullptr;
  Signature signature;
  std::uint64_t number = 0;        // unique in the table, never used again
  std::int64_t count = 0;          // number of elements; elements per row if the number of rows may differ between
                                   // ranks
  std::atomic<int> references{0};  // the last reference is given back under the table's lock
  std::atomic<int> starts{0};      // number of starts that are left of a transient operation; each prepare() adds one

  // The engine calls this function when the operation is done, on all ranks at the same point of the schedule. It is
  // set before the operation is submitted.
  std::function<void()> when_done;

  // Extras of the use in flight. The thread that submits a use writes them only if this use or the last one has any.
  bool has_extras = false;
  Extras extras;

  // Only the engine uses these, while the operation is in flight:
  Submission submission;
  Clock::time_point since;     // the time when the operation was submitted
  std::size_t place = 0;       // index in the engine's list of operations in flight
  std::uint64_t record = 0;    // the record of the log that made it part of a batch
  bool arrived = false;        // this rank has arrived at the entry's slot
  bool scheduled = false;      // the operation is part of a batch
  bool is_awaited = false;     // its handle is waited for, and it is in device memory and not scheduled
  bool precedes_join = false;  // the operation was submitted before its rank joined
};

// The operations of one name, found by their signature.
struct BySignature {
  using is_transparent = void;
  static const Signature& of(const Signature& signature) { return signature; }
  static const Signature& of(const std::unique_ptr<Operation>& operation) { return operation->signature; }
  std::size_t operator()(const auto& it) const { return of(it).hash(); }
  // A scale may be NaN, which does not equal itself. Therefore the addresses are compared first.
  bool operator()(const auto& a, const auto& b) const { return &of(a) == &of(b) || of(a) == of(b); }
};

// All operations of one name. The entry is removed with its last operation.
struct NameEntry {
  ProcessSetId set;
  std::string name;
  std::atomic<bool> in_flight{false};  // the submitting thread sets it, the engine clears it
  std::unordered_set<std::unique_ptr<Operation>, BySignature, BySignature> operations;  // the table's lock guards them

  // Only the engine uses these:
  SlotId slot{-1};
  Operation* slot_operation = nullptr;  // the slot was given for its signature; the entry holds a reference to it
  Operation* submitted = nullptr;       // the operation in flight
};

class OperationTable {
 public:
  // Finds or makes an operation. The caller holds it until release().
  Operation* prepare(OpNameView name, Signature signature);
  // For the engine: the operation in flight under the name, or null. It looks under the lock, because an entry without
  // an operation in flight may be released by another thread at any time.
  Operation* submitted(OpNameView name) const;
  // Adds a reference. Another reference must already be held.
  static void hold(Operation& operation) { operation.references.fetch_add(1, std::memory_order_relaxed); }
  void release(Operation& operation);
  std::size_t size() const {
    std::lock_guard lock(mutex_);
    return size_;
  }

 private:
  mutable std::mutex mutex_;
  // the keys are views of NameEntry::name
  std::unordered_map<OpNameView, std::unique_ptr<NameEntry>, HashOfName> entries_;
  std::size_t size_ = 0;           // number of operations in all entries
  std::uint64_t next_number_ = 1;  // the number 0 belongs to stand-ins
};

}  // namespace hvd::runtime
