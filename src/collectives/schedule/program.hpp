#pragma once
// What one seat does with one chunk of a batch, as a list of rounds: the common language of ring, tree and
// halving_doubling. An algorithm writes programs; ProgramTask runs them.
#include <cstdint>
#include <memory>
#include <vector>

#include "base/collective.hpp"
#include "base/task.hpp"
#include "collectives/algorithm.hpp"

namespace hvd::collectives {

// A chunk is dealt out to blocks; a message is a run of neighbouring ones.
struct Blocks {
  int first = 0, last = 0;  // last is not one of them
};

// A message out, or a message in, or both at once. A seat of -1 stands for no message.
struct Round {
  Seat to{-1};
  Blocks sent;
  Seat from{-1};
  Blocks received;
  bool is_reduced = false;     // what arrives is reduced with what is there; else it takes its place
  bool arrival_first = false;  // reduced: what arrives is the left operand
  bool is_total = false;       // reduced: this is the last operand of these elements, so the postscale follows
  // The number of this message among those from one seat to the other; make_program_task() fills it in.
  std::uint16_t sent_stage = 0, received_stage = 0;
};

struct Program {
  int blocks = 1;
  std::vector<Round> rounds;
};

// The programs of one plan. If blocks belong to seats (allgather, reduce_scatter), there is one block per seat.
struct Programs {
  Program large;
  Program small;  // for chunks of at most small_bytes, if that is not 0
  std::size_t small_bytes = 0;
};

// How a batch is cut: the same on all ranks, whatever their processors.
struct Cut {
  std::size_t chunk_bytes;
  int lanes = 4;  // chunks under way at once

  // All chunks under way should stay in a core's cache while they are packed, sent, received and reduced. Yet the parts
  // that go to each of many seats should not become short.
  static Cut for_seats(int seats);
};

// Runs the programs over the team's link; a team of one needs none.
std::unique_ptr<Task> make_program_task(const Collective& collective, Team& team, Programs programs);
std::unique_ptr<Task> make_program_task(const Collective& collective, Team& team, Programs programs, Cut cut);

}  // namespace hvd::collectives
