#include "runtime/operations/signature_check.hpp"

#include <algorithm>
#include <string>

#include "base/reduce_op.hpp"
#include "base/verb.hpp"

namespace hvd::runtime {

Status check(const Signature& signature, const ProcessSet& set, Rank me, const devices::Devices& devices) {
  const VerbRow& row = signature.row();
  auto invalid = [&row](const std::string& text) {
    return Error(ErrorCode::invalid_argument, std::string(row.name) + ": " + text);
  };
  const auto size = static_cast<int>(set.ranks.size());
  const bool is_world = set.id == global_process_set;
  if (!std::ranges::binary_search(set.ranks, me))
    return invalid("rank " + std::to_string(me.value) + " is no member of " + describe(set) +
                   "; only members take part in its operations");
  if (row.needs_the_world() && !is_world)
    return invalid("this works with the global process set (0) only, not in " + describe(set));
  if (row.has_root() && !std::ranges::binary_search(set.ranks, signature.root))
    return invalid("the root rank " + std::to_string(signature.root.value) + " is not one of " +
                   (is_world ? "the ranks 0 to " + std::to_string(size - 1)
                             : describe(set) + "; a root is always a rank of the world"));
  if (row.needs_power_of_2() && (size & (size - 1)) != 0)
    return invalid("the number of ranks has to be a power of two; there are " + std::to_string(size));
  if (row.takes_floats_only() && !is_floating(signature.dtype))
    return invalid(std::string("floating types only; got ") + name_of(signature.dtype));
  if (row.reduces() && !takes(signature.op, signature.dtype))
    return Error(ErrorCode::unsupported, std::string(row.name) + ": " + name_of(signature.op) +
                                             " is for integers and bool, not " + name_of(signature.dtype));
  if (row.outcome == VerbRow::Outcome::share && signature.op != ReduceOp::sum)
    return Error(ErrorCode::unsupported,
                 std::string(row.name) + " does sums and averages, not " + name_of(signature.op));
  if (row.outcome == VerbRow::Outcome::share && signature.shape.empty())
    return invalid("a tensor without dimensions has no rows to be dealt out; give it a first dimension, as in [1]");
  // With several ranks, this mistake is found when the ranks agree. If only one rank were refused here, the other ranks
  // would wait for it.
  if (size == 1 && row.agreed == VerbRow::Agreed::all_but_first && signature.shape.empty())
    return Error(ErrorCode::mismatch,
                 std::string(row.name) + " of a tensor without dimensions; give it a first dimension, as in [1]");
  if (devices.find(signature.device) == nullptr)
    return Error(ErrorCode::unsupported,
                 std::string(row.name) + ": the tensor is in " + name_of(signature.device) +
                     " memory, for which this rank has no device; give a tensor in host memory (tensor.cpu())");
  for (std::int64_t extent : signature.shape)
    if (extent < 0 && row.moves_data())
      return Error(ErrorCode::invalid_argument, "a dimension is negative: " + std::to_string(extent));
  if (!signature.bytes(1))
    return Error(ErrorCode::invalid_argument,
                 "a tensor of shape " + signature.shape_text() + " has more bytes than 64 bits can count");
  return {};
}

}  // namespace hvd::runtime
