// Counts what the agreement between nodes sends: frames_rank STEPS. 200 tensors a step, the same each time, first
// started together and then one by one; then nothing. Rank 0 prints the sums over all nodes; fails if they are too
// many.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "horovod.h"

namespace {

constexpr std::size_t ops = 200;

void check(hvd_status status) {
  if (status == HVD_OK) return;
  std::fprintf(stderr, "%s\n", hvd_last_error());
  std::exit(1);
}

double seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class Program {
 public:
  Program() {
    check(hvd_init(&runtime_));
    world_.struct_size = sizeof world_;
    check(hvd_get_world(runtime_, &world_));
    for (std::size_t i = 0; i < ops; ++i) {
      tensors_.emplace_back(16, 1.0f);
      hvd_op* op = prepare("gradient." + std::to_string(i), 16, HVD_FLOAT32);
      arguments_.push_back({op, tensors_[i].data(), tensors_[i].data(), 0});
    }
    sum_ = prepare("sum", 4, HVD_INT64);
  }
  ~Program() { hvd_shutdown(runtime_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  int rank() const { return world_.rank; }
  int64_t frames() const { return hvd_counter(runtime_, "frames_sent"); }
  void step_together() { finish(arguments_.data(), ops); }
  void step_one_by_one() {
    std::vector<hvd_handle> handles(ops);
    for (std::size_t i = 0; i < ops; ++i) check(hvd_start(runtime_, &arguments_[i], 1, &handles[i]));
    for (hvd_handle handle : handles) {
      check(hvd_wait(runtime_, handle, -1));
      hvd_release(runtime_, handle);
    }
  }
  void add_over_ranks(std::vector<int64_t>& numbers) {
    hvd_start_arguments arguments{sum_, numbers.data(), numbers.data(), 0};
    finish(&arguments, 1);
  }

 private:
  hvd_op* prepare(const std::string& name, int64_t count, hvd_dtype dtype) {
    hvd_op_description description{};
    description.struct_size = sizeof description;
    description.name = name.c_str();
    description.verb = HVD_ALLREDUCE;
    description.dtype = dtype;
    description.reduce_op = HVD_SUM;
    description.dimensions = 1;
    description.shape = &count;
    description.prescale = description.postscale = 1.0;
    hvd_op* op = nullptr;
    check(hvd_prepare(runtime_, &description, &op));
    return op;
  }
  void finish(const hvd_start_arguments* arguments, std::size_t count) {
    hvd_handle handle = 0;
    check(hvd_start(runtime_, arguments, count, &handle));
    check(hvd_wait(runtime_, handle, -1));
    hvd_release(runtime_, handle);
  }

  hvd_runtime* runtime_ = nullptr;
  hvd_world world_{};
  std::vector<std::vector<float>> tensors_;
  std::vector<hvd_start_arguments> arguments_;
  hvd_op* sum_ = nullptr;
};

}  // namespace

int main(int count, char** words) {
  const int steps = count > 1 ? std::atoi(words[1]) : 0;
  if (steps <= 0) return 2;
  Program program;
  for (int i = 0; i < 3; ++i) program.step_together();
  int64_t before = program.frames();
  double began = seconds();
  for (int i = 0; i < steps; ++i) program.step_together();
  double took = seconds() - began;
  int64_t together = program.frames() - before;
  ::usleep(300'000);
  int64_t idle = program.frames() - before - together;
  before = program.frames();
  for (int i = 0; i < steps; ++i) program.step_one_by_one();
  int64_t one_by_one = program.frames() - before;

  std::vector<int64_t> sums{together, idle, one_by_one, program.frames() > 0 ? 1 : 0};
  program.add_over_ranks(sums);
  const int64_t nodes = sums[3];
  bool is_good = nodes > 1 && sums[0] <= 3 * nodes * steps && sums[1] == 0;
  if (program.rank() == 0)
    std::printf("%d nodes: %.2f messages per node and step (one by one: %.2f), %d while idle; %.1f us a step\n",
                static_cast<int>(nodes), static_cast<double>(sums[0]) / static_cast<double>(nodes * steps),
                static_cast<double>(sums[2]) / static_cast<double>(nodes * steps), static_cast<int>(sums[1]),
                took / steps * 1e6);
  return is_good ? 0 : 1;
}
