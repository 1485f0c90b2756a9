// Checks /dev/shm, and the memory that the job's control group leaves to the ranks of a node. Horovod's own shared
// memory needs no /dev/shm, but PyTorch's loaders, MPI and NCCL do.
#include <sys/statvfs.h>

#include "base/text/size_text.hpp"
#include "launcher/preflight/check.hpp"
#include "native/posix/memory/available_memory.hpp"

namespace hvd::launcher::preflight {

constexpr double least_shm_per_rank = 64.0 * (1 << 20);
constexpr double least_memory_per_rank = 256.0 * (1 << 20);

const Check shared_memory_check{
    "memory",
    [](const Place&, Facts& facts) {
      struct statvfs state {};
      if (::statvfs("/dev/shm", &state) == 0) {
        facts.set("shm_bytes", static_cast<long long>(state.f_blocks) * static_cast<long long>(state.f_frsize));
        facts.set("shm_free", static_cast<long long>(state.f_bavail) * static_cast<long long>(state.f_frsize));
      }
      posix::AvailableMemory memory = posix::available_memory();
      facts.set("memory_free", memory.bytes);
      facts.set("memory_limited_by", memory.limited_by);
    },
    [](const Allocation& allocation) -> Verdict {
      Verdict verdict;
      double least_shm = 1e300, least_memory = 1e300;
      for (const auto& node : allocation.by_node()) {
        const Facts& probe = *node.front();
        const auto ranks = static_cast<double>(node.size());
        const double shm = probe.number("shm_free").value_or(0), memory = probe.number("memory_free").value_or(1e300);
        least_shm = std::min(least_shm, shm);
        least_memory = std::min(least_memory, memory);
        if (shm < ranks * least_shm_per_rank)
          verdict.findings.push_back({Severity::fault, probe.get("host"),
                                      "at least " + size_text(ranks * least_shm_per_rank) + " free in /dev/shm",
                                      size_text(shm) + " of " + size_text(probe.number("shm_bytes").value_or(0)),
                                      "remove what earlier jobs left in /dev/shm, or mount it larger (containers: "
                                      "--shm-size)"});
        if (memory < ranks * least_memory_per_rank)
          verdict.findings.push_back({Severity::fault, probe.get("host"),
                                      "at least " + size_text(ranks * least_memory_per_rank) + " of memory",
                                      size_text(memory) + ", by " + probe.get("memory_limited_by"),
                                      "ask the scheduler for more memory (sbatch --mem=0, qsub -l mem=), or start "
                                      "fewer ranks on a node"});
      }
      if (!allocation.probes.empty())
        verdict.summary = "at least " + size_text(least_shm) + " free in /dev/shm, " + size_text(least_memory) +
                          " of memory on each node";
      return verdict;
    }};

}  // namespace hvd::launcher::preflight
