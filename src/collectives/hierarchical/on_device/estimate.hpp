#pragma once
// How long the stages of a chunk are expected to take, and the size of the chunks that follows from it. Computed from
// values that are equal on all ranks: assumed costs, or those that the ranks have measured and agreed on.
#include <cstdint>

#include "collectives/algorithm.hpp"
#include "collectives/schedule/cost_model.hpp"

namespace hvd::collectives::hierarchical {

// Seconds of one chunk. The reduce_scatter and the allgather use the same link, one after the other. Without `out` and
// `back` the rail is a device link.
struct StageTimes {
  double pack = 0, node = 0, out = 0, rail = 0, back = 0, unpack = 0;
  double longest() const;
  double sum() const { return pack + node + out + rail + back + unpack; }
};

// Costs by bytes of a rank's share (out, rail, back) or of the chunk (pack, node). Unpacking costs as much as packing;
// of the node, it is both collectives.
struct StageCosts {
  MessageCost pack, node, out, rail, back;
  StageTimes times(double chunk_bytes, int rails) const;
};

// A share of a chunk is at most this long: the size of a slot.
inline constexpr std::int64_t most_share_bytes = 1 << 20;

// The rail along which shares are reduced. Adasum uses the host link even if there is a device link.
inline Team& rail_of(const Collective& collective, const Team& team) {
  const bool is_on_host = collective.verb == Verb::adasum && team.rail->device != nullptr && team.host != nullptr &&
                          team.host->rail != nullptr;
  return is_on_host ? *team.host->rail : *team.rail;
}

// True if a team can carry out the collective in stages on its devices.
bool is_possible_on_device(const Collective& collective, const Team& team);
StageTimes stage_times(const Collective& collective, const Team& team, double chunk_bytes);
// The times of a batch of so many chunks: all but the first follow each other at the pace of the slowest stage.
double pipelined(const StageTimes& chunk, std::int64_t chunks);
// The length of a share with which a batch of this many elements takes the shortest time. Without measured costs, by
// assumed ones.
std::int64_t best_share(const Collective& collective, const Team& team, std::int64_t elements,
                        const StageCosts* measured = nullptr);
// By assumed costs, since those of other algorithms are not measured either.
Cost cost_on_device(const Collective& collective, const Team& team);

}  // namespace hvd::collectives::hierarchical
