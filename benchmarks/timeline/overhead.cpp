// Measures what the timeline costs: steps of 200 tensors with and without it, in turns in the same processes.
//
//   horovodrun -np 2 build/release/bin/hvd_timeline_overhead [FOLDER]
//
// A block is half a second of steps. This is long enough that the thread which writes takes its share of time. A pair
// is a block without and a block with a timeline, in alternating order. The result of a row is the median of the pairs'
// ratios.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/session.hpp"

namespace {

using namespace hvd;
using namespace hvd::runtime;

constexpr int tensors = 200, pairs = 31;
constexpr double block_s = 0.5;

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "hvd_timeline_overhead: %s\n", why.c_str());
  std::exit(1);
}

class Steps {
 public:
  // Makes steps of tensors with `floats` elements. Each step comes after `arithmetic_s` seconds of arithmetic.
  Steps(Runtime& runtime, const std::string& name, std::int64_t floats, double arithmetic_s)
      : runtime_(runtime),
        data_(tensors, std::vector<float>(static_cast<std::size_t>(floats))),
        rounds_(rounds_of(arithmetic_s)) {
    for (int i = 0; i < tensors; ++i)
      operations_.push_back(prepare(name + "." + std::to_string(i), floats, ReduceOp::sum));
    agreement_ = prepare(name + ".steps", 1, ReduceOp::max);
  }

  void run() {
    for (std::int64_t i = 0; i < rounds_; ++i) sink_ = sink_ * 1.0000001 + 1e-9;
    handles_.clear();
    for (std::size_t i = 0; i < tensors; ++i) handles_.push_back(start(*operations_[i], data_[i].data()));
    for (Handles::Number handle : handles_) finish(handle);
  }
  double run(int steps) {
    meet(0);
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / steps;
  }
  // Returns the greatest number of all ranks.
  float meet(float mine) {
    finish(start(*agreement_, &mine));
    return mine;
  }

 private:
  Operation* prepare(const std::string& name, std::int64_t floats, ReduceOp op) {
    Signature signature;
    signature.op = op;
    signature.shape = {floats};
    auto operation = runtime_.prepare(name, signature);
    if (!operation) fail(operation.error().message);
    return *operation;
  }
  Handles::Number start(Operation& operation, float* data) {
    Start start{.operation = &operation, .input = data, .output = data};
    auto handle = runtime_.submit({&start, 1});
    if (!handle) fail(handle.error().message);
    return *handle;
  }
  void finish(Handles::Number handle) {
    HandleCell* cell = runtime_.find(handle);
    runtime_.wait(*cell, Deadline::never());
    if (cell->error) fail(cell->error->message);
    runtime_.release(*cell);
  }
  // Returns the number of rounds of arithmetic that take this time. Each call of a step does the same number of rounds.
  std::int64_t rounds_of(double seconds) {
    constexpr std::int64_t probe = 20'000'000;
    auto begin = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < probe; ++i) sink_ = sink_ * 1.0000001 + 1e-9;
    double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return static_cast<std::int64_t>(seconds / took * probe);
  }

  Runtime& runtime_;
  std::vector<std::vector<float>> data_;
  volatile double sink_ = 0;
  std::int64_t rounds_;
  std::vector<Operation*> operations_;
  Operation* agreement_ = nullptr;
  std::vector<Handles::Number> handles_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Returns the number of uses of operations that the file says were left out.
long left_out(const std::string& path) {
  std::ifstream file(path);
  long all = 0;
  for (std::string line; std::getline(file, line);)
    if (line.find("DROPPED") != line.npos) all += std::atol(line.c_str() + line.find("operations\":") + 12);
  return all;
}

void measure(Runtime& runtime, const std::string& path, std::int64_t floats, double arithmetic_s) {
  Steps steps(runtime, std::to_string(floats) + "." + std::to_string(arithmetic_s), floats, arithmetic_s);
  steps.run(20);
  int count = std::max(1, static_cast<int>(steps.meet(static_cast<float>(block_s / steps.run(20)))));
  std::vector<double> without, with, ratios;
  long missing = 0;
  for (int pair = 0; pair < pairs; ++pair) {
    double times[2] = {};
    for (int half = 0; half < 2; ++half) {
      bool is_on = (half == 1) != (pair % 2 == 1);
      if (is_on) {
        auto status = runtime.timeline().start(path, false);
        if (!status) fail(status.error().message);
      }
      times[is_on] = steps.run(count);
      if (!is_on) continue;
      runtime.timeline().stop();
      if (runtime.world().rank == Rank{0}) missing += left_out(path);
    }
    without.push_back(times[0]);
    with.push_back(times[1]);
    ratios.push_back(times[1] / times[0]);
  }
  if (runtime.world().rank != Rank{0}) return;
  std::sort(ratios.begin(), ratios.end());
  std::printf("| %lld B | %.0f ms | %.1f us | %.1f us | %+.2f %% | %+.2f to %+.2f %% | %.1f %% |\n",
              static_cast<long long>(floats) * 4, arithmetic_s * 1e3, median(without) * 1e6, median(with) * 1e6,
              (median(ratios) - 1) * 100, (ratios[ratios.size() / 4] - 1) * 100,
              (ratios[ratios.size() * 3 / 4] - 1) * 100,
              100.0 * static_cast<double>(missing) / (static_cast<double>(count) * tensors * pairs));
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  std::string folder = count > 1 ? arguments[1] : std::filesystem::temp_directory_path().string();
  ::setenv("HOROVOD_TIMELINE", "DYNAMIC", 1);
  Session session;
  StaticSets sets;
  auto runtime = session.start(Environment::of_this_process(), sets);
  if (!runtime) fail(runtime.error().message);
  std::string path = folder + "/hvd_timeline_overhead.json";
  if ((*runtime)->world().rank == Rank{0})
    std::printf(
        "| tensor | arithmetic before | step without | with | longer by | middle half of %d pairs | left out |\n"
        "|---|---|---|---|---|---|---|\n",
        pairs);
  for (double arithmetic_s : {0.0, 0.002, 0.010})
    for (std::int64_t floats : {16, 1280, 80'000}) measure(**runtime, path, floats, arithmetic_s);
  (*runtime)->stop();
  std::filesystem::remove(path);
}
