// A rank on a machine with made-up GPUs (`placement_rank FOLDER GPUS`: the folder gets the files of a driver with so
// many): is it bound within the processors that its launcher gave it, apart from its neighbours, and does it know its
// GPU?
#include <sched.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "horovod.hpp"
#include "libpmix_leaks.hpp"

namespace {

using Mask = std::vector<std::int64_t>;  // one element for each processor

Mask own_mask() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof set, &set);
  Mask mask(CPU_SETSIZE);
  for (std::size_t cpu = 0; cpu < mask.size(); ++cpu) mask[cpu] = CPU_ISSET(cpu, &set) ? 1 : 0;
  return mask;
}

// Every rank makes the same files, while others may read them.
void make_gpus(const std::filesystem::path& folder, int count) {
  std::filesystem::create_directories(folder / "dev");
  for (int gpu = 0; gpu < count; ++gpu) {
    const auto entry = folder / "proc/driver/nvidia/gpus" / ("0000:0" + std::to_string(gpu) + ":00.0");
    std::filesystem::create_directories(entry);
    const auto own = entry / ("information." + std::to_string(::getpid()));
    std::ofstream(own) << "Model: \t V100\nGPU UUID: \t GPU-" << gpu << "\nDevice Minor: \t " << gpu << '\n';
    std::filesystem::rename(own, entry / "information");
    std::ofstream(folder / "dev" / ("nvidia" + std::to_string(gpu)));
  }
}

std::string fault(horovod::Runtime& runtime, const Mask& given, int gpus) {
  const Mask mine = own_mask();
  for (std::size_t cpu = 0; cpu < mine.size(); ++cpu)
    if (mine[cpu] > given[cpu]) return "is bound to processor " + std::to_string(cpu) + ", which it was not given";
  const std::vector<std::int64_t> node{runtime.world().cross_rank};
  const auto nodes = runtime.allgather<std::int64_t>("nodes", node);
  const Mask masks = runtime.allgather<std::int64_t>("masks", mine);
  const Mask all_given = runtime.allgather<std::int64_t>("given", given);
  const bool is_one_each = std::accumulate(given.begin(), given.end(), std::int64_t{0}) >= runtime.local_size();
  for (std::size_t cpu = 0; cpu < mine.size(); ++cpu) {
    std::int64_t users = 0, candidates = 0;
    for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
      if (nodes[rank] != node[0]) continue;
      users += masks[rank * mine.size() + cpu];
      candidates += all_given[rank * mine.size() + cpu];
    }
    if ((candidates > 0 && users == 0) || (is_one_each && users > 1))
      return "finds processor " + std::to_string(cpu) + ", which was given to " + std::to_string(candidates) +
             " ranks of its node, bound by " + std::to_string(users);
  }
  if (const int expected = runtime.local_rank() % gpus; hvd_local_device(runtime.get()) != expected)
    return "has GPU " + std::to_string(hvd_local_device(runtime.get())) + " in place of " + std::to_string(expected);
  return "";
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) return 2;
  const int gpus = std::atoi(words[2]);
  make_gpus(words[1], gpus);
  ::setenv("HOROVOD_GPU_ROOT", words[1], 1);
  const Mask given = own_mask();
  horovod::Runtime runtime;
  const std::string wrong = fault(runtime, given, gpus);
  if (!wrong.empty()) std::printf("rank %d %s\n", runtime.rank(), wrong.c_str());
  return wrong.empty() ? 0 : 1;
}
