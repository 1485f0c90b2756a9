#pragma once
// The agreement between nodes (runtime/agreement, with its coordinator) over simulated links, in virtual time. The code
// of the agreement is the real one. Simulated are the times when a frame arrives and how long an engine takes. No clock
// is ever read, so the same settings give the same numbers on every machine.
//
//  1. In a step every rank submits the same tensors, each rank at another moment. Ranks of one node meet in memory.
//     This is modelled as a count per tensor (control/node_board is the real one). The last rank wakes the node's
//     leader.
//  2. The leader handles all that has come, lets its NodeAgreement work, and sends. Frames queue up at their host's
//     network interface, travel, queue up at the other end and wake the leader there.
//  3. The ranks of a node read a record in the node's log a little later. The step is over when all ranks know the
//     outcome of all tensors. Its added latency is the time from the last rank's submission until then.
//  4. A host that vanishes no longer answers. Its neighbours in the tree notice this after `patience`.
//
// A central coordinator is the same code, but every rank is a node of its own, and all of them are children of rank 0.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace hvd::simulation {

using Nanoseconds = std::int64_t;

struct Links {
  Nanoseconds latency = 15'000;
  Nanoseconds jitter = 5'000;  // a random part, from 0 to this value, of each frame's latency
  double gigabits_per_second = 10;
  int overhead_bytes = 82;            // per frame on the wire: Ethernet, IP, TCP, our length
  Nanoseconds inside_a_host = 5'000;  // between two agreements of one host
};

// What the work takes on a core. compare.py fits the cost of a frame to virtual nodes; real nodes are hardly slower.
struct Costs {
  Nanoseconds wake = 6'000;  // from the post until the engine runs; no core is busy meanwhile
  Nanoseconds frame_sent = 8'000;
  Nanoseconds frame_received = 8'000;
  Nanoseconds item = 50;             // one arrival, ballot or record in a frame
  Nanoseconds rank_submits = 5'000;  // a whole step, with the engine's work
  Nanoseconds rank_finishes = 5'000;
};

// Something that happens to one rank in one step.
struct Incident {
  int step = 0;
  int rank = 0;
};

struct Settings {
  int hosts = 4;
  int ranks_per_host = 2;  // at most 64
  int tree_width = 8;      // the tree width of runtime/leader
  bool is_central = false;
  int tensors = 200;
  int steps = 4;
  Links links;
  Costs costs;
  int shared_cores = 0;                   // the number of cores that all hosts share (virtual nodes); 0: no limit
  Nanoseconds spread = 0;                 // ranks submit within this time after the step's beginning
  Nanoseconds patience = 10'000'000'000;  // the time of HOROVOD_PEER_TIMEOUT
  unsigned seed = 1;
  std::optional<Incident> straggler;  // submits late by this time:
  Nanoseconds straggler_delay = 100'000'000;
  std::optional<Incident> mismatch;   // submits another shape of tensor 0
  std::optional<Incident> lost_host;  // its whole host vanishes before this rank submits

  int ranks() const { return hosts * ranks_per_host; }
};

struct Step {
  std::int64_t messages = 0;  // number of frames between nodes
  std::int64_t bytes = 0;     // bytes in these frames, including the lengths
  // number of messages and bytes that the root has received and sent
  std::int64_t messages_at_root = 0, bytes_at_root = 0;
  std::int64_t messages_in_one_host = 0;  // the messages inside a host that a central coordinator needs in addition
  int batches = 0, failures = 0;          // number of records of each kind, at the root
  Nanoseconds duration = 0;               // the time from the beginning of the step to its end
  Nanoseconds latency = 0;                // from the last submission until the last rank knows all
};

struct Outcome {
  std::vector<Step> steps;      // if a host is lost, its step is the last one
  int survivors_told = 0;       // nodes that learned of the loss and ended
  int survivors_left = 0;       // nodes that did not
  Nanoseconds told_after = 0;   // from the loss until the last node knew
  std::string message;          // the text that the last node got; after a mismatch, that of all ranks
  bool schedules_agree = true;  // every node had the same log
};

Outcome simulate(const Settings& settings);

}  // namespace hvd::simulation
