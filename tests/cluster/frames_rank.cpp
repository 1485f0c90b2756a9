// Counts the messages of the agreement between nodes: frames_rank STEPS [ELEMENTS]. Every step reduces the same 200
// tensors. STEPS steps start them together; then the program is idle for a while; STEPS more steps start them one by
// one. Rank 0 prints the sums over all nodes, as words or, if ELEMENTS is given, as JSON. Fails if there are too many
// messages. With 0 elements the ranks agree on the tensors and send no data.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "../multiprocess/allreduce_of.hpp"
#include "horovod.h"

namespace {

constexpr std::size_t ops = 200;
constexpr int64_t sums = 5;

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
  explicit Program(int elements) {
    check(hvd_init(&runtime_));
    world_.struct_size = sizeof world_;
    check(hvd_get_world(runtime_, &world_));
    for (std::size_t i = 0; i < ops; ++i) {
      tensors_.emplace_back(static_cast<std::size_t>(elements), 1.0f);
      hvd_op* op = prepare("gradient." + std::to_string(i), elements, HVD_FLOAT32);
      arguments_.push_back(hvd_use_of(op, tensors_[i].data(), tensors_[i].data()));
    }
    sum_ = prepare("sum", sums, HVD_INT64);
  }
  ~Program() { hvd_shutdown(runtime_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  int rank() const { return world_.rank; }
  int64_t count(const char* name) const { return hvd_counter(runtime_, name); }
  int64_t frames() const { return count("frames_sent"); }
  int64_t bytes() const { return count("frame_bytes_sent"); }
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
    hvd_start_arguments arguments = hvd_use_of(sum_, numbers.data(), numbers.data());
    finish(&arguments, 1);
  }

 private:
  hvd_op* prepare(const std::string& name, int64_t count, hvd_dtype dtype) {
    hvd_op_description description = hvd::testing::allreduce_of(name.c_str(), count, dtype, HVD_SUM);
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
  Program program(count > 2 ? std::atoi(words[2]) : 16);
  for (int i = 0; i < 3; ++i) program.step_together();
  int64_t before = program.frames(), bytes_before = program.bytes();
  int64_t bytes_received_before = program.count("frame_bytes_received");
  std::vector<double> took;
  for (int i = 0; i < steps; ++i) {
    double began = seconds();
    program.step_together();
    took.push_back(seconds() - began);
  }
  std::sort(took.begin(), took.end());
  int64_t together = program.frames() - before, bytes = program.bytes() - bytes_before;
  int64_t bytes_here = bytes + program.count("frame_bytes_received") - bytes_received_before;
  ::usleep(300'000);
  int64_t idle = program.frames() - before - together;
  before = program.frames();
  for (int i = 0; i < steps; ++i) program.step_one_by_one();
  int64_t one_by_one = program.frames() - before;

  std::vector<int64_t> all{together, idle, one_by_one, program.frames() > 0 ? 1 : 0, bytes};
  program.add_over_ranks(all);
  const auto nodes = static_cast<int>(all[3]);
  bool is_good = all[0] <= 3 * nodes * steps && all[1] == 0;
  auto per_step = [&](int64_t number) { return static_cast<double>(number) / steps; };
  double step_us = took[static_cast<std::size_t>(steps / 2)] * 1e6;
  // The fastest tenth of the steps, which other programs on the machine hardly slow down.
  double quick_us = took[static_cast<std::size_t>(steps / 10)] * 1e6;
  if (program.rank() == 0 && count > 2) {
    std::printf(
        "{\"messages\": %.3f, \"bytes\": %.1f, \"bytes_at_root\": %.1f, \"step_us\": %.1f, \"quick_step_us\": %.1f}\n",
        per_step(all[0]), per_step(all[4]), per_step(bytes_here), step_us, quick_us);
  } else if (program.rank() == 0) {
    std::printf("%d nodes: %.2f messages per node and step (one by one: %.2f), %d while idle; %.1f us a step\n", nodes,
                per_step(all[0]) / nodes, per_step(all[2]) / nodes, static_cast<int>(all[1]), step_us);
  }
  return is_good ? 0 : 1;
}
