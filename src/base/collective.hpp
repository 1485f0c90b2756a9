#pragma once
// What is to be done, apart from where the data lies: the input of the selector and of every plan.
#include <cstdint>
#include <span>

#include "base/data_type.hpp"
#include "base/ids.hpp"
#include "base/tensor_view.hpp"
#include "base/verb.hpp"

namespace hvd {

// Average is Sum with 1/n folded into the postscale before anything below the C API sees it.
enum class ReduceOp : std::uint8_t { sum, min, max, product };

const char* name_of(ReduceOp op) noexcept;

struct Collective {
  Verb verb = Verb::allreduce;
  DataType dtype = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  double prescale = 1.0;                 // applied to each input, rounded to dtype, before the reduction
  double postscale = 1.0;                // applied to the result
  Seat root;                             // broadcast: the seat that has the data
  DeviceKind device = DeviceKind::host;  // where the tensors are
  Stream stream;                         // of that device: there they are ready, and nothing else is waited for
  std::int64_t count = 0;                // elements of the whole batch; for a plan this is a hint of its size class
  // Elements, by seat, that a seat contributes (allgather) or receives (reduce_scatter). Borrowed for the call only.
  // The task of an alltoall is given its numbers before every batch (Task::resize).
  std::span<const std::int64_t> counts;
};

}  // namespace hvd
