#pragma once
// Contenders do the same work on the same memory. They are timed in turns within one process. The times of each
// workload are written as one line of JSON.
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
  // Called before and after a block of calls, outside of the timed span. May be null.
  std::function<void()> begin = nullptr, end = nullptr;
};

// The turn in which zeros are written, because zeros stay zeros when they are reduced again and again.
inline constexpr int zeros = -1;

struct Workload {
  // Identifies the workload in the record: verb, type, bytes, … The values are JSON already.
  std::map<std::string, std::string> description;
  // Rewrites the buffers of every contender; `turn` changes what is written. Not timed.
  std::function<void(int turn)> write;
  // True if a call after write(turn) gave the right result. Null: nothing is compared.
  std::function<bool(int turn)> is_right;
  // Makes many calls without a barrier and without rewriting between them. For calls that are shorter than a barrier.
  bool back_to_back = false;
  // As in training, every call comes after some other arithmetic, which ends at the same time on all ranks.
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
  // Rank 0 appends to the file `path`.
  Recorder(Job& job, const std::string& path, std::map<std::string, std::string> common);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Collective. The time of a contender in a round is the median over its calls of the slowest rank's time (back to
  // back: over nine blocks of calls). Contenders take turns within a round, and each round begins with another
  // contender.
  void measure(const Workload& workload, const Effort& effort);
  // Writes a line of measured values that are not times of contenders.
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
