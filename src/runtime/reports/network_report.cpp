#include "runtime/reports/network_report.hpp"

#include <fstream>

#include "base/counted.hpp"
#include "base/settings/network_settings.hpp"
#include "base/text/comma_list.hpp"
#include "base/text/number.hpp"
#include "base/transports.hpp"
#include "native/posix/machine/fabric_devices.hpp"

namespace hvd::runtime {
namespace {

// Numbers in /sys/class/net/NAME/type. They are those of the kernel's if_arp.h.
constexpr int infiniband_type = 32;

// Returns the number in a file. Returns -1 if it cannot be read; for example, an interface may not know its speed.
long number_in_file(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return leading_number<long>(line).value_or(-1);
}

// How to get a library onto the fabric, and which settings keep it to sockets.
struct Advice {
  std::vector<std::string> NetworkFacts::*forced;
  const char* what_to_do;
};
Advice advice_about(Library library) {
  switch (library) {
    case Library::nccl:
      return {&NetworkFacts::forced_for_gpus,
              "Start the job on nodes whose fabric works, without such settings (NCCL_DEBUG=INFO tells which network "
              "NCCL takes)"};
    case Library::mpi:
    case Library::none: break;
  }
  return {&NetworkFacts::forced_to_sockets,
          "Start the job with the site's MPI (horovodrun --check-build lists the plugins, HOROVOD_MPI chooses one) on "
          "nodes whose fabric works"};
}

}  // namespace

NetworkFacts NetworkFacts::of_this_host(const Environment& environment, const std::string& sys_class,
                                        const std::string& maps) {
  NetworkFacts facts;
  facts.fabric_devices = posix::fabric_devices(sys_class);
  std::ifstream file(maps);
  bool has_ucx = false, has_libfabric = false;
  for (std::string line; std::getline(file, line);) {
    has_ucx = has_ucx || line.find("/libucp") != std::string::npos;
    has_libfabric = has_libfabric || line.find("/libfabric") != std::string::npos;
  }
  if (has_ucx) facts.message_layers.emplace_back("UCX");
  if (has_libfabric) facts.message_layers.emplace_back("libfabric");
  for (const NetworkSetting& setting : network_settings)
    if (auto value = environment.get(setting.variable); value && leaves_only_sockets(setting, *value))
      facts.forced_to_sockets.push_back(std::string(setting.variable) + "=" + *value);
  const std::string net = environment.get("NCCL_NET").value_or("");
  if (net == "Socket") facts.forced_for_gpus.push_back("NCCL_NET=" + net);
  // Other networks than InfiniBand come with a plugin of NCCL, which the user names.
  const bool has_other = !net.empty() || environment.has("NCCL_NET_PLUGIN");
  if (environment.get("NCCL_IB_DISABLE").value_or("0") == "1" && !has_other)
    facts.forced_for_gpus.emplace_back("NCCL_IB_DISABLE=1");
  return facts;
}

std::string describe_interface(const std::string& name, const std::string& sys_class) {
  std::string folder = sys_class + "/net/" + name;
  std::string text = name;
  if (number_in_file(folder + "/type") == infiniband_type) text += ", InfiniBand by IP";
  long speed = number_in_file(folder + "/speed");  // the speed in Mbit/s
  if (speed >= 1000 && speed % 1000 == 0) text += ", " + std::to_string(speed / 1000) + " Gbit/s";
  else if (speed > 0) text += ", " + std::to_string(speed) + " Mbit/s";
  return text;
}

Status require_fabric(std::string_view transport, const NetworkFacts& facts, const std::string& host) {
  const TransportRow row = transport_row(transport);
  const Advice advice = advice_about(row.library);
  const std::string carrier(row.for_people);
  const std::vector<std::string>& forced = facts.*advice.forced;
  std::string why;
  if (!row.can_use_fabric()) {
    why = "tensors would go between the nodes over plain " + carrier + " sockets, since no MPI connects the ranks";
  } else if (facts.fabric_devices.empty()) {
    why = "there is no fabric device on host " + host +
          " (/sys/class/infiniband and /sys/class/cxi are empty), so that " + carrier +
          " has nothing but plain sockets there";
  } else if (!forced.empty()) {
    why = "on host " + host + " " + carrier + " is kept to plain sockets by " + joined(forced, ", ");
  } else {
    return {};
  }
  return Error(ErrorCode::unsupported, "HOROVOD_REQUIRE_FABRIC=1, but " + why + ". " + advice.what_to_do +
                                           ", or do without HOROVOD_REQUIRE_FABRIC");
}

std::string describe_networks(const Hops& hops, const NetworkFacts& facts) {
  auto named = [](std::string_view transport) { return std::string(transport_row(transport).for_people); };
  std::string text = "network: " + counted(hops.ranks, "rank") + " on " + counted(hops.nodes, "node");
  if (!hops.inside.empty()) text += "; inside a node " + named(hops.inside);
  if (hops.nodes == 1) return text;
  text += "; tensors between nodes over " + named(hops.between);
  if (!transport_row(hops.between).can_use_fabric()) return text + "; agreement over TCP (" + hops.interface + ")";
  const TransportRow row = transport_row(hops.between);
  text += " (" + (row.library == Library::mpi ? hops.library : std::string(row.medium));
  if (!facts.message_layers.empty()) text += ", on " + joined(facts.message_layers, ", ");
  if (facts.fabric_devices.empty()) text += ", plain sockets: no fabric device here";
  else text += ", fabric devices " + joined(facts.fabric_devices, ", ");
  const std::vector<std::string>& forced = facts.*advice_about(row.library).forced;
  if (!forced.empty()) text += ", but plain sockets by " + joined(forced, ", ");
  return text + "); agreement over TCP (" + hops.interface + ")";
}

}  // namespace hvd::runtime
