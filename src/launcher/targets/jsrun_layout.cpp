#include "launcher/targets/jsrun_layout.hpp"

#include <algorithm>

#include "schedulers/grammar/host_lists.hpp"

namespace hvd::launcher {
namespace {

const schedulers::Host& host_of_job(const schedulers::Allocation& allocation, const std::string& name) {
  for (const schedulers::Host& host : allocation.hosts)
    if (schedulers::is_same_host(host.name, name)) return host;
  return allocation.hosts.front();
}

struct Smallest {
  int cores = 1, gpus = -1;
};

Smallest smallest_of(const std::vector<HostSlots>& hosts, const schedulers::Allocation& allocation) {
  const schedulers::Host& first = host_of_job(allocation, hosts.front().host);
  Smallest smallest{first.cores, first.gpus};
  for (const HostSlots& each : hosts) {
    const schedulers::Host& host = host_of_job(allocation, each.host);
    smallest.cores = std::min(smallest.cores, host.cores);
    smallest.gpus = std::min(smallest.gpus, host.gpus);
  }
  smallest.cores = std::max(1, smallest.cores);
  return smallest;
}

std::vector<std::string> words(int sets, int per_host, int ranks, int cores, const std::string& gpus, int bound) {
  std::vector<std::string> text = {"-n", std::to_string(sets),  "-r", std::to_string(per_host),
                                   "-a", std::to_string(ranks), "-c", std::to_string(cores)};
  if (gpus != "0") text.insert(text.end(), {"-g", gpus});
  text.insert(text.end(), {"-b", bound > 0 ? "packed:" + std::to_string(bound) : "none", "-d", "packed"});
  return text;
}

}  // namespace

Result<std::vector<std::string>> resource_sets(const std::vector<HostSlots>& hosts,
                                               const schedulers::Allocation& allocation) {
  const Smallest host = smallest_of(hosts, allocation);
  auto [fewest, most] = std::ranges::minmax(hosts, {}, &HostSlots::slots);
  int count = static_cast<int>(hosts.size()), ranks = most.slots;
  if (fewest.slots == ranks) {
    // If the number of GPUs is unknown here, jsrun itself knows it.
    std::string gpus = host.gpus < 0 ? "ALL_GPUS" : std::to_string(host.gpus);
    return words(count, 1, ranks, host.cores, gpus, host.cores / ranks);
  }
  int all = 0;
  for (const HostSlots& each : hosts) all += each.slots;
  bool has_enough = host.cores >= ranks && (host.gpus == 0 || host.gpus >= ranks);
  if (has_enough) {
    int cores = host.cores / ranks;
    return words(all, ranks, 1, cores, std::to_string(host.gpus / ranks), cores);
  }
  return Error(ErrorCode::invalid_argument,
               std::to_string(all) + " ranks cannot be shared out evenly over " + std::to_string(count) +
                   " hosts, and a set of jsrun's for each rank takes at least a core and a GPU (a host has " +
                   std::to_string(host.cores) + " cores and " +
                   (host.gpus < 0 ? "an unknown number of" : std::to_string(host.gpus)) +
                   " GPUs): take a multiple of " + std::to_string(count) + ", or add --jsrun-erf");
}

std::string explicit_resources(const std::vector<HostSlots>& hosts, const schedulers::Allocation& allocation,
                               int threads_per_core) {
  std::string text =
      "overlapping_rs: allow\ncpu_index_using: logical\nskip_missing_cpu: warn\nskip_missing_gpu: allow\n"
      "oversubscribe_gpu: allow\noversubscribe_mem: allow\n";
  int rank = 0;
  for (const HostSlots& each : hosts) {
    int threads = std::max(1, host_of_job(allocation, each.host).cores) * std::max(1, threads_per_core);
    int width = std::max(1, threads / each.slots);
    text += "\n";
    for (int local = 0; local < each.slots; ++local) {
      int first = local * width % threads;
      text += "rank: " + std::to_string(rank++) + ": { hostname: " + each.host + "; cpu: {" + std::to_string(first) +
              "-" + std::to_string(first + width - 1) + "} ; gpu: * ; mem: * }\n";
    }
  }
  return text;
}

}  // namespace hvd::launcher
