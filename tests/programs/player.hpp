#pragma once
// One rank's part of a program, executed over horovod.h.
#include <string>
#include <utility>
#include <vector>

#include "programs/numbers.hpp"
#include "programs/program.hpp"
#include "programs/watch.hpp"

namespace hvd::programs {

inline constexpr std::int64_t for_ever = -1;  // a long timeout for hvd_wait(), because the watch ends the process if
                                              // something takes too long

class Player {
 public:
  // The runtime must have been started with the program's knobs and static sets (static_sets_of), and with dynamic
  // sets.
  Player(const Program& program, hvd_runtime* runtime, int rank, Watch& watch);
  ~Player();
  // Plays all phases and the ending, except for hvd_shutdown(). Reports faults to the watch.
  void play();

 private:
  class Thread;
  friend class Thread;

  void play(int phase);
  void change(const Change& change);
  void add(const Change& change);
  void remove(const Change& change);
  void join(int phase);
  void end();
  void expect(hvd_status expected, hvd_status found, const std::string& of);
  hvd_status try_to_prepare(const std::string& name, const Kind& kind, int set_id, bool is_transient, const char* group,
                            hvd_op*& op);
  hvd_op* prepare(const std::string& name, const Kind& kind, int set_id, bool is_transient,
                  const char* group = nullptr);
  hvd_handle start_lonely(const std::string& name, int set_id, std::vector<float>& data);
  bool wait_in_vain(const std::string& name);
  void meet();
  bool is_member(int set) const;
  // The id of the program's set number `set`.
  int id_of(int set) const { return ids_[static_cast<std::size_t>(set)]; }
  void complain(const std::string& text) { watch_.found("rank " + std::to_string(rank_) + ": " + text); }

  const Program& program_;
  hvd_runtime* runtime_;
  const int rank_;
  Watch& watch_;
  Place& place_;
  std::vector<int> ids_;  // indexed by the program's set number
};

// The lists of ranks and sizes for hvd_init_options.
std::pair<std::vector<int>, std::vector<std::size_t>> static_sets_of(const Program& program);

}  // namespace hvd::programs
