#pragma once
// Describes what a collective does, without the addresses of the data: the input of the selector and of every plan.
#include <cstdint>

#include "base/data_type.hpp"
#include "base/ids.hpp"
#include "base/tensor_view.hpp"
#include "base/verb.hpp"

namespace hvd {

// There is no average here: the C API turns it into a sum with 1/n in the postscale.
enum class ReduceOp : std::uint8_t { sum, min, max, product };

const char* name_of(ReduceOp op) noexcept;

struct Collective {
  Verb verb = Verb::allreduce;
  DataType dtype = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  double prescale = 1.0;                 // applied to each input, rounded to dtype, before the reduction
  double postscale = 1.0;                // applied to the result
  Seat root;                             // broadcast: the seat whose data all get
  DeviceKind device = DeviceKind::host;  // the kind of memory that holds the tensors
  Stream stream;           // a stream of that device. The tensors are ready on it; the task waits for nothing else
  std::int64_t count = 0;  // elements of the whole batch; for a plan only a hint of the usual size
  friend bool operator==(const Collective&, const Collective&) = default;
};

}  // namespace hvd
