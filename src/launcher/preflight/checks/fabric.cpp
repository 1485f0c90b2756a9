// Compares what carries tensors between nodes with what the fabric should reach.
#include <algorithm>
#include <cstdio>
#include <fstream>

#include "base/settings/network_settings.hpp"
#include "base/text/comma_list.hpp"
#include "base/transports.hpp"
#include "launcher/preflight/check.hpp"
#include "launcher/preflight/fabrics.hpp"
#include "launcher/preflight/link_measurement.hpp"
#include "native/posix/files/folder.hpp"
#include "native/posix/machine/fabric_devices.hpp"

namespace hvd::launcher::preflight {
namespace {

// Returns the rate in Mbit/s of the fastest interface that belongs to a device. The rates of bridges and virtual
// interfaces are not real.
long interface_speed() {
  long fastest = 0;
  for (const std::string& name : posix::names_in("/sys/class/net")) {
    const std::string folder = "/sys/class/net/" + name;
    if (posix::names_in(folder + "/device").empty()) continue;
    std::ifstream file(folder + "/speed");
    long speed = 0;
    if (file >> speed) fastest = std::max(fastest, speed);
  }
  return fastest;
}

void gather_fabric(const Place& place, Facts& facts) {
  facts.set("fabric", joined(posix::fabric_devices(), ","));
  facts.set("interface_mbit", interface_speed());
  auto note = [&](const char* name) {
    if (auto value = place.environment.get(name)) facts.set(name, *value);
  };
  for (const NetworkSetting& setting : network_settings) note(setting.variable);
  for (const char* name : {"HOROVOD_MPI", "HOROVOD_CPU_OPERATIONS"}) note(name);
}

// What keeps all transports between nodes from the fabric is a fault, so each that could use it has to be asked.
static_assert(std::ranges::all_of(transports_by_preference,
                                  [](const TransportRow& row) {
                                    return !row.between_nodes || !row.can_use_fabric() || row.library == Library::mpi;
                                  }),
              "what_keeps_to_sockets knows only what keeps an MPI from the fabric");

std::string what_keeps_to_sockets(const Facts& probe) {
  if (probe.get("HOROVOD_MPI") == "none") return "HOROVOD_MPI=none";
  if (probe.get("mpi") == "none" || probe.get("mpi").empty()) return "no MPI is found there";
  for (const NetworkSetting& setting : network_settings)
    if (const std::string value = probe.get(setting.variable); leaves_only_sockets(setting, value))
      return std::string(setting.variable) + "=" + value;
  return "";
}

double best_rate(const Facts& probe) {
  double best = 0;
  for (const LinkResult& each : link_results_in(probe.get("links")))
    best = std::max(best, std::min(each.sends_mbit, each.receives_mbit));
  return best;
}

void judge_rate(const Facts& probe, const Fabric* fabric, Verdict& verdict) {
  constexpr double least_share = 0.1;
  const double rate = best_rate(probe);
  const double interface = probe.number("interface_mbit").value_or(0) * least_share;
  const double device = fabric != nullptr ? fabric->device_gbit * 1000 * fabric->tcp_share : 0;
  const double wanted = std::max(interface, device);
  if (rate <= 0 || rate >= wanted) return;
  char expected[80], found[80];
  std::snprintf(expected, sizeof expected, "at least %.1f Gbit/s over IP", wanted / 1000);
  std::snprintf(found, sizeof found, "%.1f Gbit/s", rate / 1000);
  verdict.findings.push_back(
      {Severity::note, probe.get("host"),
       expected + (fabric != nullptr ? ", for " + std::string(fabric->name) : std::string()), found,
       "choose the fast interface by --network-interfaces; see its MTU and the rate of its port"});
}

}  // namespace

const Check fabric_check{"fabric", gather_fabric, [](const Allocation& allocation) -> Verdict {
                           Verdict verdict = equal_on_all_nodes(
                               allocation, "fabric", "devices", "none",
                               "see lspci and the kernel's log of that node (a driver that did not load)");
                           if (auto firsts = allocation.first_of_each_node();
                               verdict.findings.empty() && !firsts.empty() && firsts.front()->get("fabric").empty())
                             verdict.summary = "no device except those of sockets";
                           if (allocation.by_node().size() < 2) return verdict;
                           for (const Facts* probe : allocation.first_of_each_node()) {
                             const auto devices = items_of(probe->get("fabric"));
                             const Fabric* fabric = devices.empty() ? nullptr : fabric_of(devices.front());
                             const std::string why = what_keeps_to_sockets(*probe);
                             if (!devices.empty() && !why.empty())
                               verdict.findings.push_back(
                                   {Severity::fault, probe->get("host"),
                                    "tensors over " + (fabric != nullptr ? std::string(fabric->name) : devices.front()),
                                    "all would go over plain TCP: " + why,
                                    "load the site's MPI, which knows the fabric, and unset that variable; "
                                    "HOROVOD_REQUIRE_FABRIC=1 makes it an error"});
                             judge_rate(*probe, fabric, verdict);
                           }
                           return verdict;
                         }};

}  // namespace hvd::launcher::preflight
