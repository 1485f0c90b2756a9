#pragma once
// Contenders that do the same work on the same memory, timed in turns within one process; the times go out as one line
// of JSON per workload.
#include <cstddef>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "mpi/job.hpp"

namespace hvd::benchmark {

double now_s();

struct Contender {
  std::string name;
  std::function<void()> call;
  // Around a block of calls, not timed. May be null.
  std::function<void()> begin = nullptr, end = nullptr;
};

// The turn in which zeros are written: what stays the same when it is reduced again and again.
inline constexpr int zeros = -1;

struct Workload {
  // What identifies it in the record: verb, type, bytes, …; the values are JSON already.
  std::map<std::string, std::string> description;
  // Every owner rewrites its buffers; `turn` changes what is written. Not timed.
  std::function<void(int turn)> write;
  // Whether a call after write(turn) gave what it must. Null: nothing to compare.
  std::function<bool(int turn)> is_right;
  // Many calls without a barrier and without rewriting between them: for what is shorter than a barrier.
  bool back_to_back = false;
  // As training has it: every call comes after a while of other arithmetic, which ends at one time on all ranks.
  bool after_work = false;
  std::vector<Contender> contenders;
};

struct Effort {
  int rounds = 5;
  double seconds = 0.03;  // per contender and round
  int fewest_calls = 3;
  int most_calls = 20000;
};

class Recorder {
 public:
  // `path` is appended to by rank 0.
  Recorder(Job& job, const std::string& path, std::map<std::string, std::string> common);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Collective. The time of a contender in a round is the median of its calls (back to back: of nine blocks of them),
  // of the slowest rank. Contenders take turns within a round, and begin it in turns.
  void measure(const Workload& workload, const Effort& effort);
  // A line of measured values that are not times of contenders.
  void note(const std::map<std::string, std::string>& description,
            const std::map<std::string, std::vector<double>>& values);

 private:
  void write_line(const std::map<std::string, std::string>& fields);
  int calls_per_round(const Workload& workload, const Contender& contender, const Effort& effort);
  double time_of(const Workload& workload, const Contender& contender, int calls);

  Job& job_;
  std::FILE* file_ = nullptr;
  std::map<std::string, std::string> common_;
};

std::string json(const std::string& text);
std::string json(double number);
std::string json(const std::vector<double>& numbers);
inline std::string json(const char* text) {
  return json(std::string(text));
}
inline std::string json(std::size_t number) {
  return std::to_string(number);
}
inline std::string json(int number) {
  return std::to_string(number);
}

}  // namespace hvd::benchmark
