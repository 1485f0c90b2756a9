#pragma once
// The uses of each name, in the order in which they were submitted: the first is in flight, the others wait.
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "python/kernels/use.hpp"

namespace hvd::kernels {

struct Turn;

// The name of an operation in a process set of one runtime, and the operation of its last use.
struct Line {
  explicit Line(std::uint64_t number) : generation(number) {}

  const std::uint64_t generation;  // of the runtime (hvd_enter)
  std::deque<Turn*> turns;
  // Only the turn that is first changes these.
  Description what;
  hvd_op* op = nullptr;
};

// A use and its place in the lines of its names.
struct Turn {
  std::unique_ptr<Use> use;
  std::vector<Line*> lines;  // by member
  std::uint64_t generation = 0;
  struct Part {  // what a callback gets
    Turn* turn = nullptr;
    std::size_t member = 0;
  };
  std::vector<Part> parts;
  std::size_t left = 0;  // operations that have not ended; the thread for callbacks counts
  Ending ending;
};

class Lines {
 public:
  // Puts the turn at the end of the lines of all its names. Returns true if it is the first in all of them.
  bool join(Turn& turn);
  // Takes the turn, which is first, out of its lines. Returns the turns that are first in all their lines since.
  std::vector<Turn*> leave(const Turn& turn);
  std::size_t size();

 private:
  // More than the names of a model. Only a program that always uses new names has more.
  static constexpr std::size_t most = 8192;

  void forget_idle();

  std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<Line>> lines_;  // by generation, process set and name
};

Lines& lines();

}  // namespace hvd::kernels
