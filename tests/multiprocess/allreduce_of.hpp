#pragma once
// Describes an unscaled allreduce over one dimension, for programs that use the C interface.
#include <cstdint>

#include "horovod.h"

namespace hvd::testing {

// The description points to `name` and `count`: both must stay valid.
inline hvd_op_description allreduce_of(const char* name, const int64_t& count, hvd_dtype dtype,
                                       hvd_reduce_op reduce_op) {
  hvd_op_description description{};
  description.struct_size = sizeof description;
  description.name = name;
  description.verb = HVD_ALLREDUCE;
  description.dtype = dtype;
  description.reduce_op = reduce_op;
  description.dimensions = 1;
  description.shape = &count;
  description.prescale = description.postscale = 1.0;
  return description;
}

}  // namespace hvd::testing
