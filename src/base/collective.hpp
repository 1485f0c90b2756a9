#pragma once
// What is to be done, apart from where the data lies: the input of the selector and of every plan.
#include <cstdint>
#include <span>

#include "base/data_type.hpp"
#include "base/ids.hpp"
#include "base/tensor_view.hpp"

namespace hvd {

// The values are part of the C API (horovod.h).
enum class Verb : std::uint8_t { allreduce, allgather, broadcast, barrier, reduce_scatter };

// Average is Sum with 1/n folded into the postscale before anything below the C API sees it.
enum class ReduceOp : std::uint8_t { sum, min, max, product };

const char* name_of(Verb verb) noexcept;
const char* name_of(ReduceOp op) noexcept;

struct Collective {
  Verb verb = Verb::allreduce;
  DataType dtype = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  double prescale = 1.0;   // applied to each input, rounded to dtype, before the reduction
  double postscale = 1.0;  // applied to the result
  Seat root;               // broadcast: who has the data
  DeviceKind device = DeviceKind::host;
  std::int64_t count = 0;  // elements of the whole batch; for a plan this is a hint of its size class
  // allgather and reduce_scatter: elements that each seat contributes or receives. Borrowed for the call only.
  std::span<const std::int64_t> counts;
};

}  // namespace hvd
