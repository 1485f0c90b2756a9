#pragma once
// What a rank refuses by itself, without asking the other ranks.
#include "base/ids.hpp"
#include "base/result.hpp"
#include "devices/of_rank/devices.hpp"
#include "runtime/operations/process_sets.hpp"
#include "runtime/operations/signature.hpp"

namespace hvd::runtime {

// Returns why this rank cannot take part in such an operation of the set.
Status check(const Signature& signature, const ProcessSet& set, Rank me, const devices::Devices& devices);

}  // namespace hvd::runtime
