// The report about networks, for made-up hosts in the test's own folder.
#include "runtime/reports/network_report.hpp"

#include <filesystem>

#include "base/transports.hpp"
#include "in_own_folder.hpp"

namespace hvd::runtime {
namespace {

namespace fs = std::filesystem;

class NetworkReport : public testing::InOwnFolder {
 protected:
  NetworkFacts facts(std::map<std::string, std::string, std::less<>> variables = {}) {
    return NetworkFacts::of_this_host(Environment(std::move(variables)), folder_, folder_ + "/maps");
  }
};

TEST_F(NetworkReport, finds_fabric_devices_and_the_layers_beneath_an_mpi) {
  EXPECT_TRUE(facts().fabric_devices.empty());
  EXPECT_TRUE(facts().message_layers.empty());
  fs::create_directories(folder_ + "/infiniband/mlx5_1");
  fs::create_directories(folder_ + "/infiniband/mlx5_0");
  fs::create_directories(folder_ + "/cxi/cxi0");
  write("maps", "7f00-7f01 r-xp 0 00:00 1 /usr/lib/libucp.so.0\n7f02-7f03 r-xp 0 00:00 1 /opt/lib/libfabric.so.1.2\n");
  EXPECT_EQ(facts().fabric_devices, (std::vector<std::string>{"mlx5_0", "mlx5_1", "cxi0"}));
  EXPECT_EQ(facts().message_layers, (std::vector<std::string>{"UCX", "libfabric"}));
}

TEST_F(NetworkReport, knows_settings_that_leave_nothing_but_sockets) {
  EXPECT_TRUE(facts({{"UCX_TLS", "rc,sm,self"}, {"FI_PROVIDER", "verbs"}}).forced_to_sockets.empty());
  EXPECT_TRUE(facts({{"UCX_TLS", "^tcp"}, {"OMPI_MCA_btl", "^openib"}, {"FI_PROVIDER", ""}}).forced_to_sockets.empty());
  EXPECT_EQ(facts({{"UCX_TLS", "tcp,self,sm"}, {"FI_PROVIDER", "tcp;ofi_rxm"}}).forced_to_sockets,
            (std::vector<std::string>{"UCX_TLS=tcp,self,sm", "FI_PROVIDER=tcp;ofi_rxm"}));
}

TEST_F(NetworkReport, describes_an_interface_as_far_as_the_kernel_knows_it) {
  write("net/eth0/speed", "10000\n");
  write("net/eth0/type", "1\n");
  write("net/ib0/speed", "100000\n");
  write("net/ib0/type", "32\n");
  write("net/wlan0/speed", "-1\n");
  write("net/old/speed", "2500\n");
  EXPECT_EQ(describe_interface("eth0", folder_), "eth0, 10 Gbit/s");
  EXPECT_EQ(describe_interface("ib0", folder_), "ib0, InfiniBand by IP, 100 Gbit/s");
  EXPECT_EQ(describe_interface("wlan0", folder_), "wlan0");
  EXPECT_EQ(describe_interface("old", folder_), "old, 2500 Mbit/s");
  EXPECT_EQ(describe_interface("none", folder_), "none");
}

TEST_F(NetworkReport, refuses_plain_sockets_where_a_fabric_is_required) {
  NetworkFacts none, good{{"mlx5_0"}, {"UCX"}, {}}, forced{{"mlx5_0"}, {"UCX"}, {"UCX_TLS=tcp"}};
  EXPECT_TRUE(require_fabric("mpi", good, "n1"));
  Status tcp = require_fabric("tcp", good, "n1"), bare = require_fabric("mpi", none, "n7"),
         kept = require_fabric("mpi", forced, "n1");
  ASSERT_FALSE(tcp);
  EXPECT_EQ(tcp.error().code, ErrorCode::unsupported);
  EXPECT_NE(tcp.error().message.find("plain TCP sockets"), std::string::npos);
  EXPECT_NE(tcp.error().message.find("HOROVOD_REQUIRE_FABRIC"), std::string::npos);
  ASSERT_FALSE(bare);
  EXPECT_NE(bare.error().message.find("host n7"), std::string::npos);
  ASSERT_FALSE(kept);
  EXPECT_NE(kept.error().message.find("UCX_TLS=tcp"), std::string::npos);
}

TEST_F(NetworkReport, names_NCCL_where_it_is_NCCL_that_needs_the_fabric) {
  EXPECT_TRUE(facts({{"NCCL_NET", "IB"}, {"NCCL_IB_DISABLE", "0"}}).forced_for_gpus.empty());
  EXPECT_TRUE(facts({{"NCCL_NET_PLUGIN", "ofi"}, {"NCCL_IB_DISABLE", "1"}}).forced_for_gpus.empty());
  EXPECT_EQ(facts({{"NCCL_NET", "Socket"}}).forced_for_gpus, std::vector<std::string>{"NCCL_NET=Socket"});
  NetworkFacts found = facts({{"NCCL_IB_DISABLE", "1"}, {"UCX_TLS", "tcp"}});
  const Status bare = require_fabric("nccl", found, "n7");
  ASSERT_FALSE(bare);
  EXPECT_NE(bare.error().message.find("NCCL has nothing but plain sockets there"), std::string::npos);
  EXPECT_EQ(bare.error().message.find("MPI"), std::string::npos) << bare.error().message;
  found.fabric_devices = {"mlx5_0"};
  const Status kept = require_fabric("nccl", found, "n7");
  ASSERT_FALSE(kept);
  EXPECT_NE(kept.error().message.find("NCCL is kept to plain sockets by NCCL_IB_DISABLE=1"), std::string::npos);
  found.forced_for_gpus.clear();
  EXPECT_TRUE(require_fabric("nccl", found, "n7")) << "what restricts an MPI is not NCCL's";
}

// A transport without a library of its own is one of ours, whatever its name.
TEST_F(NetworkReport, knows_transports_by_their_rows_alone) {
  for (const TransportRow& row : transports_by_preference) {
    if (!row.between_nodes) continue;
    EXPECT_EQ(bool(require_fabric(row.name, {{"mlx5_0"}, {}, {}}, "n1")), row.can_use_fabric()) << row.name;
    EXPECT_NE(describe_networks({2, 2, "", row.name, "eth0", "L 1"}, {}).find(std::string(row.for_people)),
              std::string::npos);
  }
  EXPECT_TRUE(describe_networks({2, 2, "", "other", "eth0", ""}, {}).ends_with("other; agreement over TCP (eth0)"));
  EXPECT_TRUE(describe_networks({2, 2, "", "nccl", "eth0", ""}, {{"mlx5_0"}, {}, {"UCX_TLS=tcp"}, {"NCCL_NET=Socket"}})
                  .ends_with("but plain sockets by NCCL_NET=Socket); agreement over TCP (eth0)"));
  EXPECT_FALSE(require_fabric("other", {{"mlx5_0"}, {}, {}}, "n1"));
}

TEST_F(NetworkReport, says_in_one_line_what_every_hop_uses) {
  EXPECT_EQ(describe_networks({1, 1, "", "", "", ""}, {}), "network: 1 rank on 1 node");
  EXPECT_EQ(describe_networks({4, 1, "shm", "", "", ""}, {}),
            "network: 4 ranks on 1 node; inside a node shared memory");
  EXPECT_EQ(describe_networks({8, 4, "shm", "tcp", "eth0, 10 Gbit/s", ""}, {}),
            "network: 8 ranks on 4 nodes; inside a node shared memory; tensors between nodes over TCP; agreement over "
            "TCP (eth0, 10 Gbit/s)");
  EXPECT_EQ(describe_networks({2, 2, "", "mpi", "eth0", "MPICH 4.0.2"}, {}),
            "network: 2 ranks on 2 nodes; tensors between nodes over MPI (MPICH 4.0.2, plain sockets: no fabric device "
            "here); agreement over TCP (eth0)");
  EXPECT_EQ(describe_networks({2, 2, "", "mpi", "eth0", "Open MPI 4.1.4"}, {{"mlx5_0"}, {"UCX"}, {}}),
            "network: 2 ranks on 2 nodes; tensors between nodes over MPI (Open MPI 4.1.4, on UCX, fabric devices "
            "mlx5_0); agreement over TCP (eth0)");
}

}  // namespace
}  // namespace hvd::runtime
