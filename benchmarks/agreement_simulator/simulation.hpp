#pragma once
// The agreement between nodes (runtime/agreement, with its coordinator) over made-up links, in virtual time: the code
// is the real one; what is made up is when a frame arrives and how long an engine takes. No clock is ever read, so the
// same settings give the same numbers on every machine.
//
//  1. A step: every rank submits the same tensors, at a moment of its own. Ranks of one node meet in memory, which is
//     modelled as a count per tensor (transport/node_board is the real one); the last one wakes the node's leader.
//  2. The leader looks at all that has come, lets its NodeAgreement work, and sends. Frames queue up at their host's
//     network interface, travel, queue up at the other end and wake the leader there.
//  3. A record in a node's log is read by its ranks a little later. The step is over when all ranks know the fate of
//     all tensors; its added latency runs from when the last rank submitted.
//  4. A host that vanishes answers nobody any more; its neighbours in the tree notice after `patience`.
//
// A central coordinator is the same code with every rank a node of its own and all of them children of rank 0.
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
  Nanoseconds jitter = 5'000;  // 0 to this is added to each frame's latency
  double gigabits_per_second = 10;
  int overhead_bytes = 82;            // per frame on the wire: Ethernet, IP, TCP, our length
  Nanoseconds inside_a_host = 5'000;  // between two agreements of one host
};

// What the work takes on a core. That of a frame is what compare.py fits to virtual nodes; a real one is hardly slower.
struct Costs {
  Nanoseconds wake = 6'000;  // from the word posted to the engine running; no core is busy meanwhile
  Nanoseconds frame_sent = 8'000;
  Nanoseconds frame_received = 8'000;
  Nanoseconds item = 50;             // an arrival, ballot or record in a frame
  Nanoseconds rank_submits = 5'000;  // a whole step, engine included
  Nanoseconds rank_finishes = 5'000;
};

// A rank of which something is asked in one step.
struct Incident {
  int step = 0;
  int rank = 0;
};

struct Settings {
  int hosts = 4;
  int ranks_per_host = 2;  // at most 64
  int tree_width = 8;      // runtime/leader's
  bool is_central = false;
  int tensors = 200;
  int steps = 4;
  Links links;
  Costs costs;
  int shared_cores = 0;                   // all hosts together have so many (virtual nodes); 0: enough for everybody
  Nanoseconds spread = 0;                 // ranks submit within this time after the step's beginning
  Nanoseconds patience = 10'000'000'000;  // HOROVOD_PEER_TIMEOUT
  unsigned seed = 1;
  std::optional<Incident> straggler;  // submits so much later:
  Nanoseconds straggler_delay = 100'000'000;
  std::optional<Incident> mismatch;   // submits another shape of tensor 0
  std::optional<Incident> lost_host;  // its whole host vanishes before it submits

  int ranks() const { return hosts * ranks_per_host; }
};

struct Step {
  std::int64_t messages = 0;                             // frames between nodes
  std::int64_t bytes = 0;                                // in them, with their lengths
  std::int64_t messages_at_root = 0, bytes_at_root = 0;  // in and out
  std::int64_t messages_in_one_host = 0;                 // of a central coordinator, besides
  int batches = 0, failures = 0;                         // records of them, at the root
  Nanoseconds duration = 0;                              // since its beginning
  Nanoseconds latency = 0;                               // from the last submission until the last rank knows all
};

struct Outcome {
  std::vector<Step> steps;      // the one in which a host is lost is the last
  int survivors_told = 0;       // nodes that learned of the loss and ended
  int survivors_left = 0;       // that did not
  Nanoseconds told_after = 0;   // from the loss until the last node knew
  std::string message;          // what the last one was told; of a mismatch what all ranks were told
  bool schedules_agree = true;  // every node had the same log
};

Outcome simulate(const Settings& settings);

}  // namespace hvd::simulation
