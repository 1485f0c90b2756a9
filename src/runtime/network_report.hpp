#pragma once
// Which network the hops of a job really use: a line for people, and whether it is more than plain sockets
// (HOROVOD_REQUIRE_FABRIC).
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.hpp"
#include "base/result.hpp"
#include "base/world.hpp"

namespace hvd::runtime {

// What this host and process tell about networks. Read on demand; reading some files blocks.
struct NetworkFacts {
  std::vector<std::string> fabric_devices;     // "mlx5_0"
  std::vector<std::string> message_layers;     // that are loaded, beneath an MPI: "UCX", "libfabric"
  std::vector<std::string> forced_to_sockets;  // settings that keep these layers to sockets, "FI_PROVIDER=tcp"

  static NetworkFacts of_this_host(const Environment& environment, const std::string& sys_class = "/sys/class",
                                   const std::string& maps = "/proc/self/maps");
};

// "eth0, 10 Gbit/s", "ib0, InfiniBand by IP, 100 Gbit/s"; as far as the kernel knows.
std::string describe_interface(const std::string& name, const std::string& sys_class = "/sys/class");

// Fails if tensors between nodes would go over plain sockets; the error says why, and what to do.
Status require_fabric(std::string_view transport, const NetworkFacts& facts, const std::string& host);

// What carries tensors and agreement.
struct Hops {
  int ranks = 1, nodes = 1;
  std::string_view inside;  // transports; empty: no rank has a neighbour there
  std::string_view between;
  std::string interface;  // of connections between nodes
  std::string mpi;        // which library, if `between` is mpi
};
std::string describe_networks(const Hops& hops, const NetworkFacts& facts);

}  // namespace hvd::runtime
