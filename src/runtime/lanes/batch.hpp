#pragma once
// A batch as an algorithm sees it: a collective, and the segments of its tensors in the order in which the algorithm
// reads them.
//
// In memory, the rows of each tensor are together. If rows are divided among the seats or gathered from them, they
// travel in the order of seats: first the rows of seat 0 of every tensor, then the rows of seat 1, and so on. So a
// batch of many tensors is one collective, and each tensor is still divided by its own rows.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/collective.hpp"
#include "base/deadline.hpp"
#include "base/group.hpp"
#include "base/result.hpp"
#include "base/task.hpp"
#include "devices/device.hpp"
#include "runtime/lanes/stages_of_batch.hpp"
#include "runtime/operations/operation.hpp"

namespace hvd::runtime {

// Called for every operation of a batch that has ended for the host. The error is null if the operation succeeded. If
// the rest of it happens on a device, `end` is when it ends there; otherwise it is over (token 0).
using Finished = std::function<void(Operation&, Sequence, const Error*, Event end)>;

// A batch of which all that is left happens on a device.
struct IssuedBatch {
  ProcessSetId set;
  std::string_view name;  // of its first operation
  std::size_t operations = 0;
  DeviceKind kind = DeviceKind::host;
  int ordinal = 0;          // of the device
  Clock::time_point since;  // when it was issued, or when it became the oldest one of its lane
};

struct QueuedBatch {
  Sequence sequence;
  std::vector<Operation*> operations;  // operations of one kind (Signature::fuses_with); of an issued batch only those
                                       // that have not ended
  // Of an issued batch:
  Event end{};  // the event at its end
  Clock::time_point issued_at{};
  std::string name{};           // of its first operation; the operations themselves may be gone
  std::size_t size = 0;         // how many operations it had
  std::vector<Event> inputs{};  // where its tensors became ready, on the streams of the program
  devices::Memory copies{};     // rows that results replace (BatchOfTensors::copy_rows)
  // If observers want to know of them, also while the batch runs:
  StagesOfBatch stages{};
};

class BatchOfTensors {
 public:
  // `device` is the one whose memory holds the tensors.
  BatchOfTensors(const Group& group, devices::Device& device);

  struct Move {
    Collective collective;
    std::span<const Segment> in, out;
    std::span<const std::int64_t> sent, received;  // numbers of elements, by seat: see Task::resize()
  };
  // True if the ranks have to tell each other their rows or splits before the data can move.
  bool needs_sizes(const QueuedBatch& batch) const;
  Move sizes(const QueuedBatch& batch);
  // Prepares the move of the data; called after the sizes were exchanged, if they are needed. Allocates results whose
  // size was not known before. The code of an error is invalid_argument if all members find the same error, and
  // out_of_memory if only this rank has it. The batch's work on the device will follow that of `stream`.
  Result<Move> data(QueuedBatch& batch, Stream stream);
  // Copies the rows of inputs that their own results will replace. Called before the move, when the inputs are there.
  Status copy_rows(Stream stream);

 private:
  void add(std::vector<Segment>& list, const void* data, std::int64_t count);
  void add_as_they_are(const QueuedBatch& batch);
  Status deal_out_rows(QueuedBatch& batch, Stream stream);
  Status plan_copies(QueuedBatch& batch, Stream stream);
  Status gather_rows(const QueuedBatch& batch);
  Status exchange_rows(Operation& operation);
  Result<std::byte*> memory_for(const Operation& operation, KeptResult& result);
  Result<std::byte*> keep_result(Operation& operation, std::int64_t rows);
  Status check_size(const Operation& operation, std::int64_t rows) const;
  void take_splits(const Operation& operation);

  const Group& group_;
  devices::Device& device_;
  DataType dtype_ = DataType::u8;
  Collective collective_;
  std::vector<Segment> in_, out_;
  std::vector<std::int64_t> mine_, theirs_;  // rows: of this rank; of all ranks, by seat and tensor
  std::vector<std::int64_t> sent_, received_;
  std::vector<std::int64_t> ones_;
  std::vector<std::byte*> next_;  // where the next rows of each tensor are stored
  std::vector<devices::Move> copies_;
};

}  // namespace hvd::runtime
