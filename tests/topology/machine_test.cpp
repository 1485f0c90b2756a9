#include "topology/machine.hpp"

#include <unistd.h>

#include <filesystem>

#include "in_own_folder.hpp"
#include "topology/fixture_machines.hpp"

namespace hvd::topology {
namespace {

namespace fs = std::filesystem;

std::size_t count_of(const Machine& machine, PciDevice::Kind kind) {
  std::size_t count = 0;
  for (const PciDevice& device : machine.devices) count += device.kind == kind ? 1 : 0;
  return count;
}

struct Expected {
  const char* name;
  std::size_t packages, numa_nodes, cores;
  int cpus;
  std::size_t gpus, networks;
  const char* first_core;
};

class FixtureMachine : public ::testing::TestWithParam<Expected> {};

TEST_P(FixtureMachine, is_read_as_published) {
  const Expected& expected = GetParam();
  auto machine = fixture_machine(expected.name);
  if (!machine) GTEST_SKIP() << "no hwloc in this build";
  EXPECT_EQ(machine->packages.size(), expected.packages);
  EXPECT_EQ(machine->numa_nodes.size(), expected.numa_nodes);
  EXPECT_EQ(machine->cores.size(), expected.cores);
  EXPECT_EQ(machine->cpus.count(), expected.cpus);
  EXPECT_EQ(count_of(*machine, PciDevice::Kind::gpu), expected.gpus);
  EXPECT_EQ(count_of(*machine, PciDevice::Kind::network), expected.networks);
  EXPECT_EQ(machine->cores.front().cpus.to_string(), expected.first_core);
  EXPECT_FALSE(machine->is_this_machine) << "nobody may be bound by an imported machine";
  for (const Core& core : machine->cores) {
    EXPECT_GE(core.package, 0);
    EXPECT_GE(core.numa_node, 0);
    EXPECT_GE(core.cache, 0);
    EXPECT_TRUE(machine->cpus.contains(core.cpus));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Fixtures, FixtureMachine,
    ::testing::Values(Expected{"summit", 2, 2, 42, 168, 6, 4, "0-3"}, Expected{"lassen", 2, 2, 40, 160, 4, 4, "8-11"},
                      Expected{"polaris", 1, 4, 32, 64, 4, 2, "0,32"},
                      Expected{"perlmutter", 1, 4, 64, 128, 4, 4, "0,64"},
                      Expected{"frontier", 1, 4, 56, 112, 8, 0, "1,65"},
                      Expected{"dgx_a100", 2, 8, 128, 256, 8, 8, "0,128"},
                      Expected{"dgx_h100", 2, 2, 112, 224, 8, 8, "0,112"}, Expected{"gb200", 2, 2, 144, 144, 4, 4, "0"},
                      Expected{"cloud", 1, 1, 24, 48, 4, 1, "0,24"}, Expected{"laptop", 1, 1, 2, 4, 1, 1, "0,2"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(Machine, knows_what_a_gpu_is_near_to) {
  struct Row {
    const char* machine;
    const char* gpu;
    const char* near;
    int numa_node;
  };
  for (const Row& row :
       {Row{"summit", "0004:06:00.0", "0-83", 0}, Row{"summit", "0035:03:00.0", "88-171", 1},
        Row{"polaris", "0000:07:00.0", "24-31,56-63", 3}, Row{"polaris", "0000:c7:00.0", "0-7,32-39", 0},
        Row{"frontier", "0000:c1:00.0", "49-55,113-119", 3}, Row{"frontier", "0000:d1:00.0", "1-7,65-71", 0},
        Row{"laptop", "0000:00:02.0", "0-3", 0}}) {
    auto machine = fixture_machine(row.machine);
    if (!machine) GTEST_SKIP() << "no hwloc in this build";
    const PciDevice* gpu = machine->device(row.gpu);
    ASSERT_NE(gpu, nullptr) << row.machine << " " << row.gpu;
    EXPECT_EQ(gpu->near.to_string(), row.near) << row.machine << " " << row.gpu;
    EXPECT_EQ(gpu->numa_node, row.numa_node) << row.machine << " " << row.gpu;
  }
}

TEST(Machine, finds_a_device_by_every_spelling_of_its_bus_id) {
  Machine machine;
  machine.devices.push_back({PciDevice::Kind::gpu, "0000:c7:00.0", 0x10de, 0x20b0, {}, -1, {}});
  machine.devices.push_back({PciDevice::Kind::gpu, "10004:04:00.0", 0x10de, 0x20b0, {}, -1, {}});
  for (const char* spelling : {"0000:c7:00.0", "0000:C7:00.0", "00000000:C7:00.0", "c7:00.0"})
    EXPECT_EQ(machine.device(spelling), &machine.devices[0]) << spelling;
  EXPECT_EQ(machine.device("00010004:04:00.0"), &machine.devices[1]);
  for (const char* spelling : {"", "c8:00.0", "0004:c7:00.0", "0004:04:00.0", "garbage"})
    EXPECT_EQ(machine.device(spelling), nullptr) << spelling;
}

TEST(Machine, has_names_for_its_network_devices) {
  auto machine = fixture_machine("summit");
  if (!machine) GTEST_SKIP() << "no hwloc in this build";
  const PciDevice* device = machine->device("0033:01:00.1");
  ASSERT_NE(device, nullptr);
  EXPECT_EQ(device->kind, PciDevice::Kind::network);
  EXPECT_EQ(device->names, std::vector<std::string>{"mlx5_3"});
  EXPECT_EQ(device->numa_node, 1);
}

TEST(Machine, refuses_a_file_that_is_no_topology) {
  for (const std::string& path :
       {std::string("/nonexistent/machine.xml"), std::string(HVD_SOURCE_DIR) + "/CMakeLists.txt"}) {
    auto machine = read_machine_from_xml(path, Environment());
    ASSERT_FALSE(machine) << path;
    std::vector<std::string> notices;
    auto from_variable = read_machine(Environment({{"HWLOC_XMLFILE", path}}), notices);
    ASSERT_FALSE(from_variable) << "hwloc would read the real machine without a word";
    EXPECT_NE(from_variable.error().message.find("HWLOC_XMLFILE"), std::string::npos);
#ifdef HVD_HAS_HWLOC
    EXPECT_NE(machine.error().message.find(path), std::string::npos) << machine.error().message;
#endif
  }
}

TEST(Machine, is_the_same_through_hwloc_and_through_sys) {
  auto allowed = posix::affinity();
  ASSERT_TRUE(allowed);
  Machine plain = read_machine_from_sys("/sys", *allowed);
  EXPECT_TRUE(plain.is_this_machine);
  EXPECT_EQ(plain.cpus, *allowed);
  CpuMask covered;
  for (const Core& core : plain.cores) {
    EXPECT_FALSE(covered.overlaps(core.cpus));
    covered |= core.cpus;
  }
  EXPECT_EQ(covered, *allowed);

  std::vector<std::string> notices;
  auto machine = read_machine(Environment(), notices);
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_TRUE(machine->is_this_machine);
  ASSERT_TRUE(machine->cpus.contains(*allowed));
#ifdef HVD_HAS_HWLOC
  EXPECT_TRUE(notices.empty()) << notices.front();
  EXPECT_TRUE(machine->source.starts_with("hwloc ")) << machine->source;
#else
  EXPECT_EQ(notices.size(), 1u);
#endif
  for (const Core& core : plain.cores) {
    bool found = false;
    for (const Core& other : machine->cores) found = found || (other.cpus & *allowed) == core.cpus;
    EXPECT_TRUE(found) << core.cpus.to_string();
  }
}

// A made-up /sys in the test's own folder.
class MadeUpSys : public testing::InOwnFolder {
 protected:
  void write(const std::string& path, const std::string& text) { InOwnFolder::write(path, text + "\n"); }
};

TEST_F(MadeUpSys, gives_packages_nodes_caches_and_devices) {
  // Two packages, each with two cores of two threads. The numbers alternate: the package is cpu % 2, and cpu and cpu +
  // 4 share a core.
  for (int cpu = 0; cpu < 8; ++cpu) {
    std::string of_cpu = "devices/system/cpu/cpu" + std::to_string(cpu);
    write(of_cpu + "/topology/physical_package_id", std::to_string(cpu % 2));
    write(of_cpu + "/topology/thread_siblings_list", std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4));
    write(of_cpu + "/cache/index0/level", "1");
    write(of_cpu + "/cache/index0/type", "Instruction");
    write(of_cpu + "/cache/index0/shared_cpu_list", std::to_string(cpu));
    write(of_cpu + "/cache/index3/level", "3");
    write(of_cpu + "/cache/index3/type", "Unified");
    write(of_cpu + "/cache/index3/size", "32768K");
    write(of_cpu + "/cache/index3/shared_cpu_list", cpu % 2 == 0 ? "0,2,4,6" : "1,3,5,7");
  }
  write("devices/system/node/online", "0-1");
  write("devices/system/node/node0/cpulist", "0,2,4,6");
  write("devices/system/node/node0/meminfo", "Node 0 MemTotal:       1024 kB");
  write("devices/system/node/node1/cpulist", "1,3,5,7");
  write("bus/pci/devices/0000:17:00.0/class", "0x030200");
  write("bus/pci/devices/0000:17:00.0/vendor", "0x10de");
  write("bus/pci/devices/0000:17:00.0/local_cpulist", "1,3,5,7");
  write("bus/pci/devices/0000:03:00.0/class", "0x020700");
  write("bus/pci/devices/0000:03:00.0/infiniband/mlx5_0/node_type", "1");
  write("bus/pci/devices/0000:02:00.0/class", "0x030000");
  write("bus/pci/devices/0000:02:00.0/vendor", "0x1a03");   // the graphics chip of a server's remote console
  write("bus/pci/devices/0000:01:00.0/class", "0x010802");  // the class of a disk

  Machine machine = read_machine_from_sys(folder_, CpuMask::range(0, 7));
  ASSERT_EQ(machine.packages.size(), 2u);
  ASSERT_EQ(machine.numa_nodes.size(), 2u);
  ASSERT_EQ(machine.caches.size(), 2u);
  ASSERT_EQ(machine.cores.size(), 4u);
  EXPECT_EQ(machine.cores[0].cpus.to_string(), "0,4");
  EXPECT_EQ(machine.cores[1].cpus.to_string(), "2,6") << "neighbours in the machine, not in number";
  EXPECT_EQ(machine.cores[2].cpus.to_string(), "1,5");
  EXPECT_EQ(machine.cores[2].numa_node, 1);
  EXPECT_EQ(machine.numa_nodes[0].memory_bytes, 1024 * 1024);
  EXPECT_EQ(machine.caches[0].bytes, 32 << 20);
  ASSERT_EQ(machine.devices.size(), 2u);
  EXPECT_EQ(machine.devices[0].names, std::vector<std::string>{"mlx5_0"});
  EXPECT_EQ(machine.devices[0].near, machine.cpus);
  const PciDevice* gpu = machine.device("17:00.0");
  ASSERT_NE(gpu, nullptr);
  EXPECT_EQ(gpu->kind, PciDevice::Kind::gpu);
  EXPECT_EQ(gpu->numa_node, 1);
  EXPECT_EQ(gpu->near.to_string(), "1,3,5,7");

  // Only the allowed processors are described.
  Machine part = read_machine_from_sys(folder_, CpuMask::range(2, 4));
  ASSERT_EQ(part.cores.size(), 3u);
  EXPECT_EQ(part.cores[1].cpus.to_string(), "4");
  EXPECT_EQ(part.cores[1].package, 0);
}

TEST_F(MadeUpSys, tells_which_bridges_are_above_a_device) {
  const std::string port = "devices/pci0000:16/0000:16:01.0";
  for (const char* gpu : {"0000:18:00.0", "0000:19:00.0"}) {
    const std::string real = port + "/0000:17:00.0/" + gpu;
    write(real + "/class", "0x030200");
    fs::create_directories(folder_ + "/bus/pci/devices");
    fs::create_directory_symlink(folder_ + "/" + real, folder_ + "/bus/pci/devices/" + gpu);
  }
  Machine machine = read_machine_from_sys(folder_, CpuMask::range(0, 1));
  ASSERT_EQ(machine.devices.size(), 2u);
  for (const PciDevice& device : machine.devices)
    EXPECT_EQ(device.bridges, (std::vector<std::string>{"0000:17:00.0", "0000:16:01.0"}));
}

TEST_F(MadeUpSys, may_be_empty) {
  Machine machine = read_machine_from_sys(folder_, CpuMask::range(3, 5));
  ASSERT_EQ(machine.cores.size(), 3u);
  EXPECT_EQ(machine.cores[0].cpus.to_string(), "3");
  EXPECT_EQ(machine.packages.size(), 1u);
  EXPECT_TRUE(machine.devices.empty());
}

}  // namespace
}  // namespace hvd::topology
