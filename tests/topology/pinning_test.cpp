#include "topology/pinning.hpp"

#include <gtest/gtest.h>

#include "topology/fixture_machines.hpp"

namespace hvd::topology {
namespace {

// A machine with `packages` × `nodes` NUMA nodes × `caches` × `cores`, one thread per core, numbered in order.
Machine made_up(int packages, int nodes, int caches, int cores) {
  Machine machine;
  machine.source = "made up";
  int cpu = 0;
  for (int package = 0; package < packages; ++package) {
    machine.packages.push_back({package, {}});
    for (int node = 0; node < nodes; ++node) {
      machine.numa_nodes.push_back({package * nodes + node, package, {}, 0});
      for (int cache = 0; cache < caches; ++cache) {
        machine.caches.push_back({3, 0, {}});
        for (int core = 0; core < cores; ++core, ++cpu) {
          machine.cores.push_back(
              {package, package * nodes + node, static_cast<int>(machine.caches.size()) - 1, CpuMask::range(cpu, cpu)});
          machine.cpus.set(cpu);
        }
      }
    }
  }
  return machine;
}

CpuMask mask(const char* list) {
  return *CpuMask::parse(list);
}

std::vector<std::string> pinned(const Machine& machine, int ranks, const CpuMask& allowed,
                                std::vector<std::string> gpus = {}) {
  auto pinning = pin(machine, {allowed, ranks, std::move(gpus)});
  EXPECT_TRUE(pinning) << pinning.error().message;
  std::vector<std::string> lists;
  for (const CpuMask& each : pinning->masks) lists.push_back(each.to_string());
  return lists;
}

using Lists = std::vector<std::string>;

TEST(Pinning, gives_even_shares_that_stay_within_packages_and_numa_nodes) {
  Machine two_sockets = made_up(2, 1, 1, 21);
  EXPECT_EQ(pinned(two_sockets, 1, two_sockets.cpus), (Lists{"0-41"}));
  EXPECT_EQ(pinned(two_sockets, 2, two_sockets.cpus), (Lists{"0-20", "21-41"}));
  EXPECT_EQ(pinned(two_sockets, 6, two_sockets.cpus), (Lists{"0-6", "7-13", "14-20", "21-27", "28-34", "35-41"}));
  EXPECT_EQ(pinned(two_sockets, 5, two_sockets.cpus), (Lists{"0-6", "7-13", "14-20", "21-30", "31-41"}));

  Machine four_nodes = made_up(1, 4, 1, 8);
  EXPECT_EQ(pinned(four_nodes, 2, four_nodes.cpus), (Lists{"0-15", "16-31"}));
  EXPECT_EQ(pinned(four_nodes, 3, four_nodes.cpus), (Lists{"0-7", "8-23", "24-31"}));
  EXPECT_EQ(pinned(four_nodes, 8, four_nodes.cpus).at(7), "28-31");
}

TEST(Pinning, crosses_a_border_where_staying_within_would_be_unfair) {
  Machine two_sockets = made_up(2, 1, 1, 21);
  EXPECT_EQ(pinned(two_sockets, 3, two_sockets.cpus), (Lists{"0-13", "14-27", "28-41"}));
  // Shares must be even, even if a cache is then divided.
  Machine pairs = made_up(1, 1, 11, 2);
  EXPECT_EQ(pinned(pairs, 2, mask("0-20")), (Lists{"0-9", "10-20"}));
  EXPECT_EQ(pinned(pairs, 3, mask("0-20")), (Lists{"0-6", "7-13", "14-20"}));
  EXPECT_EQ(pinned(made_up(1, 1, 4, 4), 3, CpuMask::range(0, 15)), (Lists{"0-4", "5-9", "10-15"}));
  EXPECT_EQ(pinned(made_up(1, 1, 4, 4), 4, CpuMask::range(1, 15)), (Lists{"1-3", "4-7", "8-11", "12-15"}));
  // Only 2 cores of the first package and 6 cores of the second may be used.
  Machine uneven = made_up(2, 1, 1, 6);
  EXPECT_EQ(pinned(uneven, 2, mask("4-11")), (Lists{"6-8", "9-11"}))
      << "the two are not worth a share that crosses over";
  EXPECT_EQ(pinned(uneven, 2, mask("3-10")), (Lists{"3-5", "6-10"}));
  EXPECT_EQ(pinned(uneven, 4, mask("4-11")), (Lists{"4-5", "6-7", "8-9", "10-11"}));
}

TEST(Pinning, shares_hardware_threads_before_it_shares_processors) {
  Machine machine = made_up(1, 1, 1, 2);
  machine.cores[0].cpus = mask("0,2");
  machine.cores[1].cpus = mask("1,3");
  machine.cpus = mask("0-3");
  EXPECT_EQ(pinned(machine, 2, machine.cpus), (Lists{"0,2", "1,3"}));
  EXPECT_EQ(pinned(machine, 4, machine.cpus), (Lists{"0", "2", "1", "3"}));
  EXPECT_EQ(pinned(machine, 8, machine.cpus), (Lists{"0", "0", "2", "2", "1", "1", "3", "3"}));
  EXPECT_EQ(pinned(machine, 3, mask("0,1")), (Lists{"0", "0-1", "1"}));
  EXPECT_FALSE(pin(machine, {machine.cpus, 2, {}})->shared);
  EXPECT_TRUE(pin(machine, {machine.cpus, 3, {}})->shared);
}

TEST(Pinning, binds_processors_that_the_machine_does_not_know) {
  Machine unknown;
  EXPECT_EQ(pinned(unknown, 2, mask("5-8")), (Lists{"5-6", "7-8"}));
  EXPECT_EQ(pinned(made_up(1, 1, 1, 2), 3, mask("1,7,9")), (Lists{"1", "7", "9"}));
}

TEST(Pinning, refuses_what_cannot_be_done) {
  Machine machine = made_up(1, 1, 1, 2);
  EXPECT_FALSE(pin(machine, {machine.cpus, 0, {}}));
  EXPECT_FALSE(pin(machine, {CpuMask(), 1, {}}));
  EXPECT_FALSE(pin(machine, {machine.cpus, 2, {"0000:01:00.0"}}));
}

TEST(Pinning, follows_the_gpus_of_published_machines) {
  struct Row {
    const char* machine;
    std::vector<std::string> gpus;
    Lists expected;
  };
  const Row rows[] = {
      {"summit",
       {"0004:04:00.0", "0004:05:00.0", "0004:06:00.0", "0035:03:00.0", "0035:04:00.0", "0035:05:00.0"},
       {"0-27", "28-55", "56-83", "88-115", "116-143", "144-171"}},
      {"summit", {"0035:03:00.0", "0004:04:00.0"}, {"88-171", "0-83"}},
      {"lassen",
       {"0004:04:00.0", "0004:05:00.0", "0035:03:00.0", "0035:04:00.0"},
       {"8-47", "48-87", "96-135", "136-175"}},
      // In this machine GPU 0 is at the last NUMA node.
      {"polaris",
       {"0000:07:00.0", "0000:46:00.0", "0000:85:00.0", "0000:c7:00.0"},
       {"24-31,56-63", "16-23,48-55", "8-15,40-47", "0-7,32-39"}},
      {"frontier",
       {"c1:00.0", "c6:00.0", "c9:00.0", "ce:00.0", "d1:00.0", "d6:00.0", "d9:00.0", "de:00.0"},
       {"49-55,113-119", "57-63,121-127", "17-23,81-87", "25-31,89-95", "1-7,65-71", "9-15,73-79", "33-39,97-103",
        "41-47,105-111"}},
      // This GPU is near to all cores. Therefore it makes no difference.
      {"laptop", {"0000:00:02.0", "0000:00:02.0"}, {"0,2", "1,3"}},
      // The second rank has no GPU. It gets cores that the first rank does not need.
      {"polaris", {"0000:07:00.0", ""}, {"24-31,56-63", "0-23,32-55"}},
  };
  for (const Row& row : rows) {
    auto machine = fixture_machine(row.machine);
    if (!machine) GTEST_SKIP() << "no hwloc in this build";
    EXPECT_EQ(pinned(*machine, static_cast<int>(row.gpus.size()), machine->cpus, row.gpus), row.expected)
        << row.machine;
    auto pinning = pin(*machine, {machine->cpus, static_cast<int>(row.gpus.size()), row.gpus});
    EXPECT_TRUE(pinning->gpu_local) << row.machine;
  }
}

TEST(Pinning, shares_the_cores_near_to_a_gpu_among_its_ranks) {
  auto machine = fixture_machine("polaris");
  if (!machine) GTEST_SKIP() << "no hwloc in this build";
  EXPECT_EQ(pinned(*machine, 3, machine->cpus, {"07:00.0", "c7:00.0", "07:00.0"}),
            (Lists{"24-27,56-59", "0-7,32-39", "28-31,60-63"}));
}

TEST(Pinning, leaves_a_gpu_rather_than_let_two_ranks_share_a_core) {
  auto machine = fixture_machine("polaris");
  if (!machine) GTEST_SKIP() << "no hwloc in this build";
  // Of the GPU's node only a single core is allowed, and there are two ranks.
  auto pinning = pin(*machine, {mask("0-3,24"), 2, {"07:00.0", "07:00.0"}});
  ASSERT_TRUE(pinning);
  EXPECT_FALSE(pinning->masks[0].overlaps(pinning->masks[1]));
  EXPECT_FALSE(pinning->gpu_local);
}

// Checks what must hold for every machine, mask and number of ranks.
void expect_sound(const Machine& machine, const CpuMask& allowed, int ranks, const std::vector<std::string>& gpus) {
  auto pinning = pin(machine, {allowed, ranks, gpus});
  ASSERT_TRUE(pinning) << pinning.error().message;
  ASSERT_EQ(pinning->masks.size(), static_cast<std::size_t>(ranks));
  int cores = 0;
  for (const Core& core : machine.cores) cores += core.cpus.overlaps(allowed) ? 1 : 0;
  EXPECT_EQ(pinning->shared, cores < ranks);
  CpuMask used;
  for (const CpuMask& each : pinning->masks) {
    EXPECT_FALSE(each.empty());
    EXPECT_TRUE(allowed.contains(each));
    if (cores < ranks) continue;
    EXPECT_FALSE(used.overlaps(each)) << each.to_string();
    used |= each;
    int first = -1;
    int last = -1;
    for (int core = 0; core < static_cast<int>(machine.cores.size()); ++core) {
      CpuMask usable = machine.cores[static_cast<std::size_t>(core)].cpus & allowed;
      if (!usable.overlaps(each)) continue;
      EXPECT_TRUE(each.contains(usable)) << "half of core " << core;
      if (first < 0) first = core;
      for (int between = last + 1; gpus.empty() && last >= 0 && between < core; ++between) {
        EXPECT_FALSE(machine.cores[static_cast<std::size_t>(between)].cpus.overlaps(allowed))
            << between << " is left out";
      }
      last = core;
    }
  }
}

TEST(Pinning, is_sound_for_any_number_of_ranks_on_any_part_of_any_machine) {
  for (const char* name : {"summit", "lassen", "polaris", "frontier", "laptop"}) {
    auto machine = fixture_machine(name);
    if (!machine) GTEST_SKIP() << "no hwloc in this build";
    std::vector<std::string> gpus;
    for (const PciDevice& device : machine->devices)
      if (device.kind == PciDevice::Kind::gpu) gpus.push_back(device.bus_id);
    std::vector<CpuMask> masks = {machine->cpus, machine->cores.front().cpus, machine->cores.back().cpus};
    CpuMask every_third;
    CpuMask one_thread_each;
    for (std::size_t i = 0; i < machine->cores.size(); ++i) {
      if (i % 3 == 0) every_third |= machine->cores[i].cpus;
      one_thread_each.set(machine->cores[i].cpus.last());
    }
    masks.push_back(every_third);
    masks.push_back(one_thread_each);
    for (const CpuMask& allowed : masks) {
      int cores = 0;
      for (const Core& core : machine->cores) cores += core.cpus.overlaps(allowed) ? 1 : 0;
      for (int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 13, cores - 1, cores, cores + 1, 2 * cores + 1}) {
        if (ranks < 1) continue;
        SCOPED_TRACE(std::string(name) + " " + allowed.to_string() + ", ranks: " + std::to_string(ranks));
        expect_sound(*machine, allowed, ranks, {});
        std::vector<std::string> cyclic;
        for (int rank = 0; rank < ranks; ++rank) cyclic.push_back(gpus[static_cast<std::size_t>(rank) % gpus.size()]);
        expect_sound(*machine, allowed, ranks, cyclic);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(Pinning, binds_this_process_to_what_it_was_given) {
  std::vector<std::string> notices;
  auto machine = read_machine(Environment(), notices);
  ASSERT_TRUE(machine);
  auto allowed = posix::affinity();
  ASSERT_TRUE(allowed);
  for (int ranks : {1, 2, 3, 4, 1000}) expect_sound(*machine, *allowed, ranks, {});
}

TEST(Pinning, is_described_in_a_line) {
  Machine machine = made_up(2, 1, 1, 2);
  EXPECT_EQ(describe_binding(machine, mask("0-1")), "cpus 0-1 (2 cores, package 0, NUMA node 0)");
  EXPECT_EQ(describe_binding(machine, mask("1-2")), "cpus 1-2 (2 cores, packages 0,1, NUMA nodes 0,1)");
}

}  // namespace
}  // namespace hvd::topology
