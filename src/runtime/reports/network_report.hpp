#pragma once
// Finds out which network the hops of a job really use. Gives a line for people, and checks that the network is more
// than plain sockets (HOROVOD_REQUIRE_FABRIC).
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/settings/environment.hpp"
#include "base/world.hpp"

namespace hvd::runtime {

// Facts about networks that this host and process know. Read on demand, because reading some of the files blocks.
struct NetworkFacts {
  std::vector<std::string> fabric_devices;     // devices of fabrics, such as "mlx5_0"
  std::vector<std::string> message_layers;     // layers loaded below an MPI: "UCX", "libfabric"
  std::vector<std::string> forced_to_sockets;  // settings that restrict these layers to sockets, "FI_PROVIDER=tcp"
  std::vector<std::string> forced_for_gpus{};  // the same for what carries tensors from GPU to GPU, "NCCL_IB_DISABLE=1"

  static NetworkFacts of_this_host(const Environment& environment, const std::string& sys_class = "/sys/class",
                                   const std::string& maps = "/proc/self/maps");
};

// Returns text such as "eth0, 10 Gbit/s" or "ib0, InfiniBand by IP, 100 Gbit/s", with the parts that the kernel knows.
std::string describe_interface(const std::string& name, const std::string& sys_class = "/sys/class");

// Fails if tensors between nodes would go over plain sockets. The error says why and what to do.
Status require_fabric(std::string_view transport, const NetworkFacts& facts, const std::string& host);

// The transports and networks that carry tensors and agreement.
struct Hops {
  int ranks = 1, nodes = 1;
  std::string_view inside;  // names of transports; empty if no rank has a neighbour there
  std::string_view between;
  std::string interface;  // the interface of connections between nodes
  std::string library;    // the library that moves the bytes of `between`, with its version; empty: there is none
};
std::string describe_networks(const Hops& hops, const NetworkFacts& facts);

}  // namespace hvd::runtime
