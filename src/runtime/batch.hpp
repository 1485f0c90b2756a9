#pragma once
// A batch as an algorithm sees it: which collective, and the segments of its tensors in the order in which it reads
// them.
//
// What is dealt out or gathered by rows lies by tensor in memory, but travels by seat: first all that concerns seat 0,
// of every tensor of the batch, then seat 1. So a batch of many tensors is one collective, and each tensor is divided
// by its own rows.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/collective.hpp"
#include "base/group.hpp"
#include "base/result.hpp"
#include "devices/device.hpp"
#include "runtime/operation.hpp"

namespace hvd::runtime {

// Gets every operation of a batch that is over, and the error if it failed.
using Finished = std::function<void(Operation&, Sequence, const Error*)>;

struct QueuedBatch {
  Sequence sequence;
  std::vector<Operation*> operations;  // all of one kind (Signature::fuses_with); of an issued one those not over yet
  Event end{};                         // of an issued one
};

class BatchOfTensors {
 public:
  // `device`: where the tensors lie.
  BatchOfTensors(const Group& group, devices::Device& device);

  struct Move {
    Collective collective;  // its counts are borrowed from the batch
    std::span<const Segment> in, out;
    std::span<const std::int64_t> sent, received;  // alltoall: elements, by seat
  };
  // The ranks have to tell each other their rows or splits before the data can move.
  bool needs_sizes(const QueuedBatch& batch) const;
  Move sizes(const QueuedBatch& batch);
  // After the sizes, where they are needed: makes room for results that nobody could know the size of. An error that
  // all members find alike has the code invalid_argument; out_of_memory is this rank's alone.
  Result<Move> data(const QueuedBatch& batch);

 private:
  void add(std::vector<Segment>& list, const void* data, std::int64_t count);
  void add_as_they_are(const QueuedBatch& batch);
  void deal_out_rows(const QueuedBatch& batch);
  Status gather_rows(const QueuedBatch& batch);
  Status exchange_rows(Operation& operation);
  Result<std::byte*> keep_result(Operation& operation, std::int64_t rows);
  Status check_size(const Operation& operation, std::int64_t rows) const;
  void take_splits(const Operation& operation);

  const Group& group_;
  devices::Device& device_;
  DataType dtype_ = DataType::u8;
  Collective collective_;
  std::vector<Segment> in_, out_;
  std::vector<std::int64_t> counts_;         // elements by seat
  std::vector<std::int64_t> mine_, theirs_;  // rows: my own, and by seat those of all (by tensor within a seat)
  std::vector<std::int64_t> sent_, received_;
  std::vector<std::int64_t> ones_;
  std::vector<std::byte*> next_;  // where the next rows of each tensor go
};

}  // namespace hvd::runtime
