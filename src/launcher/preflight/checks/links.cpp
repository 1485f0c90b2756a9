// Compares the links between nodes: finds nodes that are slow or cannot be reached.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/counted.hpp"
#include "launcher/preflight/check.hpp"
#include "launcher/preflight/link_measurement.hpp"

namespace hvd::launcher::preflight {
namespace {

// A node is slow if its best link is worse than the median of the other nodes by these factors.
constexpr double slow_share = 0.3;
constexpr double late_factor = 8, least_lateness_us = 300;

struct NodeLinks {
  std::string host;
  double best_mbit = 0;       // the best rate to any node, in the slower direction
  double latency_us = 1e300;  // the smallest latency of the node's links
  std::vector<std::string> unreached;
  std::vector<LinkResult> faults;
  bool has_numbers = false;
};

NodeLinks links_of(const Facts& probe) {
  NodeLinks node{probe.get("host"), 0, 1e300, {}, {}, false};
  double sends = 0, receives = 0;
  for (const LinkResult& each : link_results_in(probe.get("links"))) {
    if (!each.fault.empty()) {
      node.unreached.push_back(each.peer);
      node.faults.push_back(each);
      continue;
    }
    sends = std::max(sends, each.sends_mbit);
    receives = std::max(receives, each.receives_mbit);
    node.latency_us = std::min(node.latency_us, each.latency_us);
    node.has_numbers = true;
  }
  node.best_mbit = std::min(sends, receives);
  return node;
}

template <typename Member>
double median_of_others(const std::vector<NodeLinks>& nodes, const NodeLinks& self, Member member) {
  std::vector<double> values;
  for (const NodeLinks& node : nodes)
    if (&node != &self && node.has_numbers) values.push_back(node.*member);
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[values.size() / 2];
}

std::string rate_text(double mbit) {
  char text[40];
  std::snprintf(text, sizeof text, mbit >= 1000 ? "%.1f Gbit/s" : "%.0f Mbit/s", mbit >= 1000 ? mbit / 1000 : mbit);
  return text;
}

std::string latency_text(double microseconds) {
  return std::to_string(std::lround(microseconds)) + " us";
}

void judge_speed(const std::vector<NodeLinks>& nodes, const NodeLinks& node, Verdict& verdict) {
  const double usual = median_of_others(nodes, node, &NodeLinks::best_mbit);
  const double usual_latency = median_of_others(nodes, node, &NodeLinks::latency_us);
  if (node.best_mbit < usual * slow_share)
    verdict.findings.push_back({Severity::fault, node.host,
                                "links as fast as those of other nodes (" + rate_text(usual) + ")",
                                rate_text(node.best_mbit) + " at best",
                                "see ethtool, ibstat and the switch port of this node (a link that trained at a lower "
                                "rate, a bad cable), and leave it out of the job"});
  else if (node.latency_us > usual_latency * late_factor && node.latency_us > usual_latency + least_lateness_us)
    verdict.findings.push_back({Severity::fault, node.host,
                                "a latency like that of other nodes (" + latency_text(usual_latency) + ")",
                                latency_text(node.latency_us) + " at best",
                                "see what else runs on this node, and its power settings and switch port"});
}

// Names the pairs of nodes that do not reach each other although both reach others.
void judge_pairs(const std::vector<NodeLinks>& nodes, const NodeLinks& node, Verdict& verdict) {
  auto has_fault = [](const NodeLinks& at, const std::string& peer, std::string_view fault) {
    return std::ranges::any_of(at.faults,
                               [&](const LinkResult& each) { return each.peer == peer && each.fault == fault; });
  };
  for (const std::string& peer : node.unreached) {
    auto other = std::ranges::find(nodes, peer, &NodeLinks::host);
    if (other == nodes.end() || !other->has_numbers) continue;
    if (!has_fault(node, peer, cannot_connect) || !has_fault(*other, node.host, did_not_connect)) continue;
    verdict.findings.push_back({Severity::fault, node.host, "a connection to " + peer + ", as to other nodes",
                                "none to " + peer + ", though both reach other nodes",
                                "see the routes and the firewalls of both nodes (ip route get, ip neigh), or leave "
                                "one of the two out of the job"});
  }
}

}  // namespace

const Check links_check{
    "links", nullptr, [](const Allocation& allocation) -> Verdict {
      std::vector<NodeLinks> nodes;
      for (const Facts& probe : allocation.probes)
        if (probe.has("links")) nodes.push_back(links_of(probe));
      if (nodes.empty())
        return {allocation.by_node().size() > 1 ? "not measured, since the ranks did not meet" : "a single node", {}};
      Verdict verdict;
      double best = 0, latency = 1e300;
      for (const NodeLinks& node : nodes) {
        best = std::max(best, node.best_mbit);
        latency = std::min(latency, node.latency_us);
        // Of a node that reaches no other one, the node gets a finding, and not each of its pairs.
        if (!node.has_numbers)
          verdict.findings.push_back({Severity::fault, node.host, "connections to other nodes",
                                      "none to " + (node.unreached.empty() ? "any" : node.unreached.front()),
                                      "see the firewall and the routes of this node; HOROVOD_PORT_RANGE and "
                                      "--network-interfaces choose ports and interfaces"});
        else if (nodes.size() > 2) judge_speed(nodes, node, verdict);
        if (node.has_numbers) judge_pairs(nodes, node, verdict);
      }
      verdict.summary = "TCP between " + counted(nodes.size(), "node") + ": up to " + rate_text(best) + ", from " +
                        latency_text(latency);
      return verdict;
    }};

}  // namespace hvd::launcher::preflight
