// Compares the whole library, engine and agreement included, with the least that a library over MPI has to do: it packs
// the tensors, calls MPI_Allreduce and unpacks them.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "mpi/job.hpp"
#include "mpi/measure.hpp"
#include "mpi/options.hpp"
#include "mpi/our_runtime.hpp"
#include "mpi/tensors.hpp"
#include "mpi/upstream_shape.hpp"

namespace hvd::benchmark {
namespace {

struct Step {
  const char* name;
  std::size_t tensors;
  std::size_t bytes;  // size of all tensors together
  bool after_work = false;
};
constexpr Step steps[] = {{"one_8B", 1, 8},
                          {"tiny_200", 200, 200 * 256},
                          {"one_8B_after_work", 1, 8, true},
                          {"tiny_200_after_work", 200, 200 * 64, true},
                          {"step_1MB", 200, 1 << 20},
                          {"step_8MB", 200, 8 << 20},
                          {"step_64MB", 200, 64 << 20}};

std::vector<std::size_t> counts_of(const Step& step) {
  std::size_t total = step.bytes / sizeof(float);
  if (std::string(step.name).starts_with("tiny_200"))
    return std::vector<std::size_t>(step.tensors, total / step.tensors);
  return resnet50_gradients(step.tensors, total);
}

struct Program {
  Job& job;
  Recorder& recorder;
  OurRuntime& runtime;
  const Options& options;
  Effort effort;
};

Workload workload_of(Program& program, const Step& step, Tensors& tensors) {
  int rank = program.job.rank(), size = program.job.size();
  Workload workload;
  workload.after_work = step.after_work;
  workload.description = {{"workload", json(step.name)},
                          {"dtype", json("float32")},
                          {"bytes", json(tensors.bytes())},
                          {"tensors", json(step.tensors)}};
  workload.write = [&tensors, rank](int turn) { tensors.write(rank, turn); };
  workload.is_right = [&tensors, size](int turn) {
    return tensors.hold_sums(size, turn, 1.0f / static_cast<float>(size));
  };
  return workload;
}

void add_ours(Workload& workload, OurStep& ours) {
  workload.contenders.push_back({"ours", [&ours] {
                                   ours.start_one_by_one();
                                   ours.wait();
                                 }});
  workload.contenders.push_back({"ours_together", [&ours] {
                                   ours.start_together();
                                   ours.wait();
                                 }});
}

void time_steps(Program& program, const Step& step) {
  Tensors tensors(counts_of(step));
  OurStep ours(program.runtime, tensors, step.name);
  PackedAllreduce packed(tensors, program.job.size());
  Workload workload = workload_of(program, step, tensors);
  workload.contenders = {{"packed_mpi", [&] { packed(MPI_COMM_WORLD); }}};
  add_ours(workload, ours);
  program.recorder.measure(workload, program.effort);
}

// Compares the steps with a control plane that wakes up once per cycle.
void time_cycles(Program& program, const Step& step) {
  Tensors tensors(counts_of(step));
  OurStep ours(program.runtime, tensors, std::string("cycles.") + step.name);
  CycleEngine every_millisecond(program.job, tensors, std::chrono::microseconds(1000));
  CycleEngine without_sleep(program.job, tensors, std::chrono::microseconds(0));
  auto contender = [](const char* name, CycleEngine& engine) {
    return Contender{name,
                     [&engine] {
                       engine.submit();
                       engine.wait();
                     },
                     [&engine] { engine.resume(); }, [&engine] { engine.pause(); }};
  };
  Workload workload = workload_of(program, step, tensors);
  workload.contenders = {contender("cycle_1ms", every_millisecond), contender("cycle_0", without_sleep)};
  add_ours(workload, ours);
  program.recorder.measure(workload, program.effort);
}

// Measures how long hvd_start keeps the submitting thread, for 200 tensors.
void time_submission(Program& program) {
  const Step& step = steps[1];
  Tensors tensors(counts_of(step));
  OurStep ours(program.runtime, tensors, "submission");
  CycleEngine engine(program.job, tensors, std::chrono::microseconds(1000));
  auto submission = [&](auto submit, auto wait) {
    std::vector<double> times;
    for (int i = 0; i < 40; ++i) {
      program.job.barrier();
      double begin = now_s();
      submit();
      times.push_back((now_s() - begin) * 1e6);
      wait();
    }
    std::nth_element(times.begin(), times.begin() + 20, times.end());
    return times[20];
  };
  std::map<std::string, std::vector<double>> times;
  for (int round = 0; round < program.effort.rounds; ++round) {
    times["ours_us"].push_back(submission([&] { ours.start_one_by_one(); }, [&] { ours.wait(); }));
    times["ours_together_us"].push_back(submission([&] { ours.start_together(); }, [&] { ours.wait(); }));
    engine.resume();
    times["cycle_1ms_us"].push_back(submission([&] { engine.submit(); }, [&] { engine.wait(); }));
    engine.pause();
  }
  program.recorder.note({{"workload", json("submission")}, {"tensors", json(step.tensors)}}, times);
}

// Measures what threads use while the program asks for nothing.
void measure_idleness(Program& program) {
  const double seconds = program.options.number("idle-seconds");
  const Step& step = steps[1];
  Tensors tensors(counts_of(step));
  OurStep ours(program.runtime, tensors, "idle");
  CycleEngine engine(program.job, tensors, std::chrono::microseconds(1000));
  auto idle = [&](auto usage) {
    program.job.barrier();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    Usage before = usage();
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    Usage after = usage();
    return std::pair((after.cpu_s - before.cpu_s) / seconds, (after.switches - before.switches) / seconds);
  };
  ours.start_together();
  ours.wait();
  auto [cores, switches] = idle([&] { return program.runtime.usage(); });
  engine.resume();
  engine.submit();
  engine.wait();
  auto [cycle_cores, cycle_switches] = idle([&] { return engine.usage(); });
  engine.pause();
  program.recorder.note({{"workload", json("idle")}, {"seconds", json(seconds)}},
                        {{"ours_cores", {cores}},
                         {"ours_switches_per_s", {switches}},
                         {"cycle_1ms_cores", {cycle_cores}},
                         {"cycle_1ms_switches_per_s", {cycle_switches}}});
}

void run(Program& program) {
  const Options& options = program.options;
  for (const Step& step : steps) {
    if (options.lists("steps", step.name)) time_steps(program, step);
    if (options.lists("cycles", step.name)) time_cycles(program, step);
  }
  if (options.count("control") != 0) {
    time_submission(program);
    measure_idleness(program);
  }
}

}  // namespace
}  // namespace hvd::benchmark

int main(int argument_count, char** arguments) {
  using namespace hvd::benchmark;
  Options options(argument_count, arguments,
                  {{"out", "-"},
                   {"peer", "mpi"},
                   {"variant", "default"},
                   {"launch", "0"},
                   {"steps", "one_8B,tiny_200,one_8B_after_work,tiny_200_after_work,step_1MB,step_8MB,step_64MB"},
                   {"cycles", ""},    // steps to compare with a cycle; needs an MPI for several threads
                   {"control", "0"},  // 1: cost of submission and of idleness; needs such an MPI
                   {"bound", "1"},
                   {"idle-seconds", "2"},
                   {"rounds", "5"},
                   {"seconds", "0.1"}});
  Job job(options.count("bound") != 0, !options.text("cycles").empty() || options.count("control") != 0);
  Recorder recorder(job, options.text("out"),
                    {{"program", json("whole_library")},
                     {"peer", json(options.text("peer"))},
                     {"variant", json(options.text("variant"))},
                     {"launch", json(options.count("launch"))},
                     {"mpi_version", json(job.mpi_version())}});
  OurRuntime runtime(job);
  Effort effort;
  effort.rounds = options.count("rounds");
  effort.seconds = options.number("seconds");
  Program program{job, recorder, runtime, options, effort};
  run(program);
}
