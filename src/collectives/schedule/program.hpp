#pragma once
// A program is what one seat does with one chunk of a batch, as a list of rounds. Ring, tree and halving_doubling write
// programs; ProgramTask runs them.
#include <cstdint>
#include <memory>
#include <vector>

#include "base/collective.hpp"
#include "base/task.hpp"
#include "collectives/algorithm.hpp"

namespace hvd::collectives {

// A chunk is divided into blocks. A message consists of consecutive blocks.
struct Blocks {
  int first = 0, last = 0;  // `last` is not included
};

// An outgoing message, an incoming message, or both at the same time. Seat -1 means that there is no such message.
struct Round {
  Seat to{-1};
  Blocks sent;
  Seat from{-1};
  Blocks received;
  bool is_reduced = false;     // the arriving data are reduced with the data that are there; else they replace them
  bool arrival_first = false;  // of a reduction: the arriving data are the left operand
  bool is_total = false;       // of a reduction: this is the last operand of these elements, so the postscale follows
  // The number of this message among the messages from one seat to the other. make_program_task() fills it in.
  std::uint16_t sent_stage = 0, received_stage = 0;
};

struct Program {
  int blocks = 1;
  std::vector<Round> rounds;
};

// The programs of one plan. If each block belongs to a seat (allgather, reduce_scatter), there is one block per seat.
struct Programs {
  Program large;
  Program small;  // the program for chunks of at most small_bytes; unused if small_bytes is 0
  std::size_t small_bytes = 0;
};

// How a batch is cut. It is equal on all ranks, even if their processors differ.
struct Cut {
  std::size_t chunk_bytes;
  int tracks = 4;  // chunks that are under way at the same time

  // All chunks under way should stay in a core's cache while they are packed, sent, received and reduced. On the other
  // hand, with many seats the parts for each seat should not become short.
  static Cut for_seats(int seats);
};

// Returns a task that runs the programs over the team's link. A team of one needs no link.
std::unique_ptr<Task> make_program_task(const Collective& collective, Team& team, Programs programs);
std::unique_ptr<Task> make_program_task(const Collective& collective, Team& team, Programs programs, Cut cut);

}  // namespace hvd::collectives
