#pragma once
// Prepared operations: what a program said about a tensor once, so that it need not say it again.
//
// An operation lives as long as somebody holds it: the program (prepare to release), its use under way, its slot. So
// the table has what is held and what is agreed about, and does not grow with what a program has once asked for.
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

#include "runtime/handle.hpp"
#include "runtime/op_name.hpp"
#include "runtime/signature.hpp"

namespace hvd::runtime {

struct Operation;

// What is called on the engine's thread when a use is over; `function` is the caller's, of a type that `tell` knows.
struct Callback {
  void (*tell)(void (*function)(), void* context, const Error* error) = nullptr;
  void (*function)() = nullptr;
  void* context = nullptr;
};

// One use of an operation.
struct Submission {
  Operation* operation = nullptr;
  const void* input = nullptr;
  void* output = nullptr;
  std::int64_t first_dimension = 0;  // rows of this use, if each rank has its own number
  HandleCell* handle = nullptr;      // null: this rank has joined, and nobody submitted it
  std::uint32_t index = 0;           // among the operations of the handle
  // alltoall: rows for each seat; none: equal parts. Memory of the caller's, read until the use is submitted.
  std::span<const std::int64_t> splits{};
  Callback on_done{};
  Stream stream{};  // device memory: the caller's; the result is ordered on it
  Event ready{};    // where that stream had got to when the operation was submitted
};

struct NameEntry;

struct Operation {
  NameEntry* entry = nullptr;
  Signature signature;
  std::uint64_t number = 0;        // unique in the table, never given again
  std::int64_t count = 0;          // elements (per row, if each rank has its own number of rows)
  std::atomic<int> references{0};  // the last one is given back under the table's lock
  std::atomic<int> starts{0};      // of a transient one: how often it may still be started, once for each prepare()

  // Called by the engine when it is done, at the same point of the schedule on all ranks; set before it is submitted.
  std::function<void()> when_done;

  // Of the use in flight; written by whoever submits it.
  std::vector<std::int64_t> splits;

  // The engine's own, while in flight:
  Submission submission;
  Clock::time_point since;     // it was submitted
  std::size_t place = 0;       // in the engine's list of ops in flight
  std::uint64_t record = 0;    // of the log, that made it part of a batch
  bool arrived = false;        // at the entry's slot
  bool scheduled = false;      // part of a batch
  bool precedes_join = false;  // submitted before its rank joined
};

// Operations under one name are found by their signature.
struct BySignature {
  using is_transparent = void;
  static const Signature& of(const Signature& signature) { return signature; }
  static const Signature& of(const std::unique_ptr<Operation>& operation) { return operation->signature; }
  std::size_t operator()(const auto& it) const { return of(it).hash(); }
  // A scale may be no number, which does not equal itself.
  bool operator()(const auto& a, const auto& b) const { return &of(a) == &of(b) || of(a) == of(b); }
};

// Everything under one name; goes with the last operation.
struct NameEntry {
  ProcessSetId set;
  std::string name;
  std::atomic<bool> in_flight{false};  // set by the submitting thread, cleared by the engine
  std::unordered_set<std::unique_ptr<Operation>, BySignature, BySignature> operations;  // guarded by the table

  // The engine's own:
  SlotId slot{-1};
  Operation* slot_operation = nullptr;  // the slot was given for its signature; the entry holds it
  Operation* submitted = nullptr;       // the one in flight
};

class OperationTable {
 public:
  // Finds or makes; the caller holds it until release().
  Operation* prepare(OpNameView name, Signature signature);
  // Null if nobody holds anything under the name.
  NameEntry* find(OpNameView name);
  // Takes another reference; the caller or somebody else must hold one.
  static void hold(Operation& operation) { operation.references.fetch_add(1, std::memory_order_relaxed); }
  void release(Operation& operation);
  std::size_t size() const {
    std::lock_guard lock(mutex_);
    return size_;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<OpNameView, std::unique_ptr<NameEntry>, HashOfName> entries_;  // keys are views of NameEntry::name
  std::size_t size_ = 0;                                                            // operations of all entries
  std::uint64_t next_number_ = 1;  // 0: what stands in for another rank's
};

}  // namespace hvd::runtime
