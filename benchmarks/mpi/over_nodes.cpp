// Allreduce between nodes. It compares MPI's own allreduce with the whole library over TCP and over MPI, hierarchical
// and flat, and with the library's data plane alone (no agreement, no engine). They take turns in the same processes
// over the same links. Prints a row of a table per workload: the median of the rounds in milliseconds, and how many
// times faster than MPI that is (median, least and greatest round).
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "horovod.hpp"
#include "link/our_link.hpp"
#include "mpi/options.hpp"
#include "mpi/packed_allreduce.hpp"
#include "mpi/prepared_averages.hpp"
#include "mpi/tensors.hpp"
#include "mpi/world_ranks.hpp"

namespace hvd::benchmark {
namespace {

int my_rank = 0, size = 1;

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "rank %d: %s\n", my_rank, why.c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

// A runtime over all ranks that is made with these variables set.
class OneWay {
 public:
  explicit OneWay(const std::map<std::string, std::string>& variables) {
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    MPI_Comm world = MPI_COMM_WORLD;
    hvd_init_options options{};
    options.struct_size = sizeof options;
    options.mpi_comm = &world;
    options.mpi_comm_size = sizeof world;
    check(hvd_init_with(&runtime_, &options));
    for (const auto& [name, value] : variables) ::unsetenv(name.c_str());
  }
  ~OneWay() { hvd_shutdown(runtime_); }
  OneWay(const OneWay&) = delete;
  OneWay& operator=(const OneWay&) = delete;

  // Returns a function that averages each of the tensors.
  std::function<void()> step(const Tensors& tensors, const std::string& name) {
    std::vector<hvd_start_arguments> all = prepare_averages(runtime_, tensors, name, &OneWay::check);
    return [this, all] {
      hvd_handle handle = 0;
      check(hvd_start(runtime_, all.data(), all.size(), &handle));
      check(hvd_wait(runtime_, handle, -1));
      hvd_release(runtime_, handle);
    };
  }

 private:
  static void check(hvd_status status) {
    if (status != HVD_OK) fail(hvd_last_error());
  }
  hvd_runtime* runtime_ = nullptr;
};

struct Contender {
  std::string name;
  std::unique_ptr<OneWay> way;  // null for MPI itself and for the data plane
  std::unique_ptr<OurLink> data_plane;

  std::function<void()> step(const Tensors& tensors, const std::string& name, PackedAllreduce& packed);
};

std::function<void()> Contender::step(const Tensors& tensors, const std::string& workload, PackedAllreduce& packed) {
  if (way) return way->step(tensors, workload);
  if (!data_plane) return [&packed] { packed(MPI_COMM_WORLD); };
  Collective average;
  average.dtype = DataType::f32;
  average.count = static_cast<std::int64_t>(tensors.count());
  average.postscale = 1.0 / size;
  std::vector<Segment> segments;
  for (const Tensors::Tensor& tensor : tensors.all())
    segments.push_back(one_segment(tensor.data, tensor.count, DataType::f32)[0]);
  return data_plane->call(average, segments, segments);
}

std::vector<Contender> contenders_of(const Options& options) {
  const std::map<std::string, std::map<std::string, std::string>> known = {
      {"mpi", {}},
      {"tcp-data-plane", {}},
      {"tcp", {{"HOROVOD_CPU_OPERATIONS", "gloo"}}},
      {"tcp-flat", {{"HOROVOD_CPU_OPERATIONS", "gloo"}, {"HOROVOD_ALGORITHM", "allreduce=" + options.text("flat")}}},
      {"tcp-hierarchical", {{"HOROVOD_CPU_OPERATIONS", "gloo"}, {"HOROVOD_ALGORITHM", "allreduce=hierarchical"}}},
      {"over-mpi", {}},
      {"over-mpi-flat", {{"HOROVOD_ALGORITHM", "allreduce=" + options.text("flat")}}},
      {"over-mpi-hierarchical", {{"HOROVOD_ALGORITHM", "allreduce=hierarchical"}}}};
  std::vector<Contender> contenders;
  for (const std::string& name : options.list("contenders")) {
    auto found = known.find(name);
    if (found == known.end()) fail("unknown contender " + name);
    Contender contender{name, nullptr, nullptr};
    if (name == "tcp-data-plane") contender.data_plane = std::make_unique<OurLink>(ranks_of_world(true, fail));
    else if (name != "mpi") contender.way = std::make_unique<OneWay>(found->second);
    contenders.push_back(std::move(contender));
  }
  return contenders;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Returns the median over the calls of the slowest rank's time in each call.
double time_of(const std::function<void()>& call, int calls) {
  std::vector<double> times;
  for (int i = 0; i < calls; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    call();
    times.push_back(MPI_Wtime() - begin);
  }
  MPI_Allreduce(MPI_IN_PLACE, times.data(), calls, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return median(times);
}

int calls_for(double seconds_per_call, double seconds) {
  return std::clamp(static_cast<int>(seconds / std::max(seconds_per_call, 1e-7)), 3, 300);
}

void measure(std::vector<Contender>& contenders, const Options& options, std::size_t bytes, std::size_t count) {
  std::size_t total = std::max<std::size_t>(bytes / sizeof(float), 1);
  Tensors tensors(count > 1 ? resnet50_gradients(count, total) : std::vector<std::size_t>{total});
  PackedAllreduce packed(tensors, size);
  std::string workload = std::to_string(bytes) + " B in " + std::to_string(count);
  std::vector<std::function<void()>> calls;
  std::vector<int> repeats;
  int turn = 0;
  for (Contender& contender : contenders) {
    calls.push_back(contender.step(tensors, workload, packed));
    // These calls warm up, and their results are checked.
    for (int again = 0; again < 3; ++again) {
      tensors.write(my_rank, ++turn);
      MPI_Barrier(MPI_COMM_WORLD);
      calls.back()();
      if (!tensors.hold_sums(size, turn, 1.0f / static_cast<float>(size))) fail(contender.name + " gave wrong values");
    }
    tensors.write(0, 0);  // from now on equal on all ranks, so that averages do not change
    repeats.push_back(calls_for(time_of(calls.back(), 3), options.number("seconds")));
  }
  std::vector<std::vector<double>> times(contenders.size());
  for (int round = 0; round < options.count("rounds"); ++round)
    for (std::size_t k = 0; k < contenders.size(); ++k) {
      std::size_t at = (k + static_cast<std::size_t>(round)) % contenders.size();
      times[at].push_back(time_of(calls[at], repeats[at]));
    }
  if (my_rank != 0) return;
  std::printf("| %s |", workload.c_str());
  for (std::size_t at = 0; at < contenders.size(); ++at) {
    std::vector<double> ratios;
    for (std::size_t round = 0; round < times[at].size(); ++round) ratios.push_back(times[0][round] / times[at][round]);
    std::printf(" %.3f", median(times[at]) * 1e3);
    if (at > 0)
      std::printf(" · %.2fx (%.2f–%.2f)", median(ratios), *std::min_element(ratios.begin(), ratios.end()),
                  *std::max_element(ratios.begin(), ratios.end()));
    std::printf(" |");
  }
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace
}  // namespace hvd::benchmark

int main(int argument_count, char** arguments) {
  using namespace hvd::benchmark;
  Options options(argument_count, arguments,
                  {{"contenders", "mpi,tcp,tcp-hierarchical,tcp-flat,over-mpi,over-mpi-hierarchical,over-mpi-flat"},
                   {"flat", "halving_doubling"},
                   {"bytes", "8,4096,65536,1048576,16777216,67108864"},
                   {"steps", "67108864"},  // bytes of 200 tensors together
                   {"rounds", "5"},
                   {"seconds", "0.2"}});
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &my_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  {
    std::vector<Contender> contenders = contenders_of(options);
    if (my_rank == 0) {
      std::printf("| workload |");
      for (const Contender& contender : contenders) std::printf(" %s ms |", contender.name.c_str());
      std::printf("\n|---|");
      for (std::size_t i = 0; i < contenders.size(); ++i) std::printf("---|");
      std::printf("\n");
    }
    for (const std::string& bytes : options.list("bytes")) measure(contenders, options, std::stoull(bytes), 1);
    for (const std::string& bytes : options.list("steps")) measure(contenders, options, std::stoull(bytes), 200);
  }
  MPI_Finalize();
}
