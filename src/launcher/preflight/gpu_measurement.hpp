#pragma once
// Measures, in the place of a rank, how fast NCCL moves bytes: between the ranks of its node, and between the nodes.
// The plugin of NCCL does it. A probe without one has nothing to measure.
#include <string>
#include <vector>

#include "launcher/preflight/check.hpp"

namespace hvd::launcher::preflight {

// Facts: driver, gpu_name, gpu_uuid, nccl; gpu_trouble (why there is no GPU or no NCCL), nccl_fault (what is known to
// be wrong with that NCCL), gpu_ordinal if the rank can take part in measurements.
void gather_gpu_facts(const Place& place, Facts& facts);

// What each probe tells the others before they measure.
struct GpuCard {
  bool can_measure = false;
  std::string id_of_node;   // for a communicator of its node: the first probe of the node draws it
  std::string id_of_world;  // for one of all ranks: rank 0 draws it
};
GpuCard draw_gpu_card(const Environment& environment, const Facts& facts, bool is_rank_0);

struct GpuTeam {
  int rank = 0;
  std::vector<int> nodes;      // of each rank the number of its node, from 0 on
  std::vector<GpuCard> cards;  // of each rank
};
// With whom a rank exchanges bytes, one after the other; -1: with nobody, others do. In a node the numbers are places
// in `ranks_of_node`. On other nodes it is the rank with the same place. Pure functions.
std::vector<int> partners_in_node(const std::vector<int>& ranks_of_node, int rank);
std::vector<int> partners_on_other_nodes(const std::vector<int>& nodes, int rank);

// Collective. Facts: gpu_node and gpu_world, the rates of allreduces; gpu_partner and gpu_rail, those of exchanges with
// the best partner on the node and on another node, all in GB/s; gpu_error if a measurement has failed.
void measure_gpus(const Environment& environment, const GpuTeam& team, Facts& facts);

}  // namespace hvd::launcher::preflight
