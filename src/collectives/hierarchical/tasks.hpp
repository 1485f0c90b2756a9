#pragma once
// The collectives over nodes and rails. Each verb has one file. Every task uses the team, which must outlive it.
#include <array>
#include <memory>
#include <span>
#include <utility>

#include "collectives/algorithm.hpp"
#include "collectives/hierarchical/pipeline.hpp"

namespace hvd::collectives::hierarchical {

std::unique_ptr<Task> plan_allreduce(const Collective& collective, Team& team);
std::unique_ptr<Task> plan_broadcast(const Collective& collective, Team& team);
std::unique_ptr<Task> plan_allgather(const Collective& collective, Team& team);
std::unique_ptr<Task> plan_reduce_scatter(const Collective& collective, Team& team);
std::unique_ptr<Task> plan_barrier(const Collective& collective, Team& team);

// Returns an array with one object for each track.
template <typename T, typename... Arguments>
std::array<T, Pipeline::track_count> per_track(const Arguments&... arguments) {
  return [&]<std::size_t... track>(std::index_sequence<track...>) {
    return std::array<T, Pipeline::track_count>{((void)track, T(arguments...))...};
  }
  (std::make_index_sequence<Pipeline::track_count>());
}

}  // namespace hvd::collectives::hierarchical
