// Compares drivers, models and NCCLs of the ranks' GPUs, and how fast NCCL moves bytes between them.
#include <algorithm>
#include <cstdio>
#include <map>

#include "launcher/preflight/check.hpp"
#include "launcher/preflight/gpu_measurement.hpp"

namespace hvd::launcher::preflight {
namespace {

// Slow is what is below this share of the median of the others.
constexpr double slow_node = 0.5, slow_pair = 0.3;
constexpr std::size_t least_to_compare = 3;

using Probes = std::vector<const Facts*>;

std::string speed_text(double gigabytes) {
  char text[40];
  std::snprintf(text, sizeof text, gigabytes >= 10 ? "%.0f GB/s" : "%.2g GB/s", gigabytes);
  return text;
}

std::string rank_text(const Facts& probe) {
  return "local rank " + probe.get("local_rank") + " (" + probe.get("gpu_name") + ", " + probe.get("gpu_uuid") + ")";
}

// A rate that some probes have measured.
class Measured {
 public:
  struct One {
    const Facts* probe;
    double rate;
  };

  Measured(const Probes& probes, std::string_view fact) {
    for (const Facts* probe : probes)
      if (auto rate = probe->number(fact)) all_.push_back({probe, *rate});
  }
  double best() const {
    double most = 0;
    for (const One& one : all_) most = std::max(most, one.rate);
    return most;
  }
  // Calls slow(one, usual) for each that has less than this share of the median of the others.
  template <typename Slow>
  void compare(double share, Slow slow) const {
    if (all_.size() < least_to_compare) return;
    for (const One& self : all_) {
      std::vector<double> others;
      for (const One& one : all_)
        if (&one != &self) others.push_back(one.rate);
      std::ranges::sort(others);
      if (const double usual = others[others.size() / 2]; self.rate < usual * share) slow(self, usual);
    }
  }

 private:
  std::vector<One> all_;
};

constexpr const char* see_the_gpu =
    "see nvidia-smi topo -m, nvidia-smi -q -d PERFORMANCE,PCIE and the kernel's log there (a link that trained at a "
    "lower rate, a GPU that is throttled), and leave the node out of the job";

void judge_nodes(const Probes& firsts, Verdict& verdict) {
  Measured(firsts, "gpu_node").compare(slow_node, [&](const Measured::One& one, double usual) {
    verdict.findings.push_back({Severity::fault, one.probe->get("host"),
                                "an allreduce in the node as fast as in others (" + speed_text(usual) + ")",
                                speed_text(one.rate), see_the_gpu});
  });
}

// A rank is slow if it is so with its best partner. Of two alone nobody can tell which is the slow one.
void judge_ranks(const Probes& probes, std::string_view fact, const char* which, Verdict& verdict) {
  Measured(probes, fact).compare(slow_pair, [&](const Measured::One& one, double usual) {
    verdict.findings.push_back(
        {Severity::fault, one.probe->get("host"),
         std::string("exchanges with GPUs ") + which + " as fast as those of others (" + speed_text(usual) + ")",
         speed_text(one.rate) + " at best by " + rank_text(*one.probe), see_the_gpu});
  });
}

// What is known without the driver, the check of GPUs has told.
void judge_sharing(const Probes& node, Verdict& verdict) {
  std::map<std::string, const Facts*> taken;
  for (const Facts* probe : node) {
    if (!probe->has("gpu_uuid") || !probe->get("gpus").empty()) continue;
    if (auto [other, is_new] = taken.emplace(probe->get("gpu_uuid"), probe); !is_new)
      verdict.findings.push_back(
          {Severity::fault, probe->get("host"), "a GPU of its own for each rank",
           rank_text(*probe) + " and local rank " + other->second->get("local_rank") + " take the same",
           "start no more ranks on a node than it has GPUs, and give one to each"});
  }
}

void note_differences(const Allocation& allocation, Verdict& verdict) {
  for (const auto& [fact, what] : {std::pair("driver", "a driver for CUDA"), std::pair("gpu_name", "GPU")}) {
    Verdict one = equal_on_all_nodes(allocation, fact, what, "none",
                                     "ask for nodes of one kind; the site brings the driver up to date");
    for (Finding& finding : one.findings) {
      finding.severity = Severity::note;
      verdict.findings.push_back(std::move(finding));
    }
  }
}

void judge_probe(const Facts& probe, Verdict& verdict) {
  const std::string rank = "local rank " + probe.get("local_rank") + ": ";
  if (probe.has("gpu_trouble"))
    verdict.findings.push_back({Severity::note, probe.get("host"), "a GPU and NCCL for each rank",
                                rank + probe.get("gpu_trouble"),
                                "without them tensors are staged through host memory, and nothing was measured"});
  if (probe.has("nccl_fault"))
    verdict.findings.push_back({Severity::note, probe.get("host"), "an NCCL without known faults",
                                probe.get("nccl_fault"), "load another module, or install another nvidia-nccl"});
  if (probe.has("gpu_error"))
    verdict.findings.push_back({Severity::fault, probe.get("host"), "an allreduce over NCCL",
                                rank + probe.get("gpu_error"), "NCCL_DEBUG=INFO tells where NCCL waits"});
}

std::string summary_of(const Probes& probes) {
  std::string text = probes.front()->get("gpu_name") + ", driver for CUDA " + probes.front()->get("driver");
  const std::pair<const char*, const char*> rates[] = {{"gpu_node", "; allreduce in a node: up to "},
                                                       {"gpu_world", "; over all nodes: "}};
  for (const auto& [fact, words] : rates)
    if (const double best = Measured(probes, fact).best(); best > 0) text += words + speed_text(best);
  return text;
}

Verdict judge_gpu_links(const Allocation& allocation) {
  Probes with_gpu, firsts;
  for (const Facts& probe : allocation.probes)
    if (probe.has("gpu_uuid")) with_gpu.push_back(&probe);
  if (with_gpu.empty()) return {"no rank has a GPU of NVIDIA", {}};
  Verdict verdict{summary_of(with_gpu), {}};
  note_differences(allocation, verdict);
  std::size_t largest_node = 0;
  for (const auto& node : allocation.by_node()) {
    judge_sharing(node, verdict);
    largest_node = std::max(largest_node, node.size());
    firsts.push_back(node.front());
  }
  for (const Facts& probe : allocation.probes) judge_probe(probe, verdict);
  judge_nodes(firsts, verdict);
  if (largest_node >= least_to_compare) judge_ranks(with_gpu, "gpu_partner", "of the node", verdict);
  if (firsts.size() >= least_to_compare) judge_ranks(with_gpu, "gpu_rail", "on other nodes", verdict);
  return verdict;
}

}  // namespace

const Check gpu_links_check{"gpu links", gather_gpu_facts, judge_gpu_links};

}  // namespace hvd::launcher::preflight
