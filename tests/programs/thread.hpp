#pragma once
// One thread of a rank in a phase. It starts the operations of every step in its own order, alone or several
// at once, and waits for them.
#include <latch>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "programs/player.hpp"

namespace hvd::programs {

class Player::Thread {
 public:
  // `steps`: in how many of the phase's steps the thread takes part. `has_submitted`, if not null, is counted down when
  // the thread has started all its operations.
  Thread(Player& player, int phase, int number, std::vector<int> uses, int steps, std::latch* has_submitted);
  ~Thread();
  void run();

 private:
  struct Part;
  struct Start;

  void step(int step);
  std::unique_ptr<Part> part_of(int use, int step);
  void begin(Start& start, int step);
  void finish(Start& start);
  void check(const Start& start, std::size_t index);
  hvd_op* operation_of(const Part& part);
  void blunder(int step);

  Player& player_;
  const Phase& phase_;
  const int phase_number_, number_;
  const std::vector<int> uses_;
  const int steps_;
  std::latch* const has_submitted_;
  Place& place_;
  std::map<std::pair<int, int>, hvd_op*> held_;  // operations that are prepared once, by use and kind of use
};

}  // namespace hvd::programs
