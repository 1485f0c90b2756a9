#include "topology/placement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <random>
#include <set>

#include "topology/fixture_machines.hpp"
#include "topology/placement_report.hpp"

namespace hvd::topology {
namespace {

using Lists = std::vector<std::string>;

CpuMask mask(const std::string& list) {
  return *CpuMask::parse(list);
}

std::vector<VisibleGpu> gpus(const Lists& bus_ids) {
  std::vector<VisibleGpu> list;
  for (const std::string& bus_id : bus_ids) list.push_back({bus_id, "", ""});
  return list;
}

// A rank for each mask; all of them see all GPUs.
PlacementRequest seeing_all(const Lists& masks, const Lists& visible) {
  PlacementRequest request;
  for (const std::string& each : masks) request.ranks.push_back({mask(each), gpus(visible)});
  return request;
}

// A rank for each mask; each of them sees one GPU.
PlacementRequest seeing_one_each(const Lists& masks, const Lists& visible) {
  PlacementRequest request;
  for (std::size_t rank = 0; rank < masks.size(); ++rank)
    request.ranks.push_back({mask(masks[rank]), gpus({visible[rank]})});
  return request;
}

Lists repeated(const std::string& text, std::size_t times) {
  return Lists(times, text);
}

// "ordinal bus:device processors memory node network" for each rank, the bus id without its domain and function.
std::string line_of(const RankPlacement& place) {
  const std::string& bus = place.identity.bus_id;
  std::string text = place.gpu < 0 ? "-" : std::to_string(place.gpu) + " " + bus.substr(5, 2);
  return text + " " + place.cpus.to_string() + " m" + std::to_string(place.memory_node) + " " + place.network;
}

const Lists summit = {"0004:04:00.0", "0004:05:00.0", "0004:06:00.0", "0035:03:00.0", "0035:04:00.0", "0035:05:00.0"};
const Lists lassen = {"0004:04:00.0", "0004:05:00.0", "0035:03:00.0", "0035:04:00.0"};
const Lists perlmutter = {"0000:03:00.0", "0000:41:00.0", "0000:82:00.0", "0000:c1:00.0"};
const Lists polaris = {"0000:07:00.0", "0000:46:00.0", "0000:85:00.0", "0000:c7:00.0"};
const Lists frontier = {"0000:c1:00.0", "0000:c6:00.0", "0000:c9:00.0", "0000:ce:00.0",
                        "0000:d1:00.0", "0000:d6:00.0", "0000:d9:00.0", "0000:de:00.0"};
const Lists dgx_a100 = {"0000:07:00.0", "0000:0f:00.0", "0000:47:00.0", "0000:4e:00.0",
                        "0000:87:00.0", "0000:90:00.0", "0000:b7:00.0", "0000:bd:00.0"};
const Lists dgx_h100 = {"0000:1b:00.0", "0000:43:00.0", "0000:52:00.0", "0000:61:00.0",
                        "0000:9d:00.0", "0000:c3:00.0", "0000:d1:00.0", "0000:df:00.0"};

struct Site {
  const char* name;  // of the test
  const char* machine;
  PlacementRequest request;
  Lists expected;
  const char* notice = nullptr;  // a part of the only one
};

Lists in_steps(int first, int step, int width, std::size_t ranks, int second_threads = -1) {
  Lists masks;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    auto begin = first + static_cast<int>(rank) * step;
    CpuMask each = CpuMask::range(begin, begin + width - 1);
    if (second_threads >= 0) each |= CpuMask::range(begin + second_threads, begin + second_threads + width - 1);
    masks.push_back(each.to_string());
  }
  return masks;
}

std::vector<Site> sites() {
  const Lists summit_masks = {"0-27", "28-55", "56-83", "88-115", "116-143", "144-171"};
  PlacementRequest two_sets = seeing_all({"0-83", "0-83", "0-83", "88-171", "88-171", "88-171"}, {});
  for (std::size_t rank = 0; rank < 6; ++rank)
    two_sets.ranks[rank].gpus =
        gpus(rank < 3 ? Lists(summit.begin(), summit.begin() + 3) : Lists(summit.begin() + 3, summit.end()));
  const Lists summit_as_published = {"0 04 0-27 m0 mlx5_0",   "0 05 28-55 m0 mlx5_1",   "0 06 56-83 m0 mlx5_0",
                                     "0 03 88-115 m8 mlx5_2", "0 04 116-143 m8 mlx5_3", "0 05 144-171 m8 mlx5_2"};
  PlacementRequest polaris_script = seeing_one_each(in_steps(0, 8, 8, 4, 32), {polaris.rbegin(), polaris.rend()});
  return {
      // A set for each GPU. A cgroup hides the other GPUs.
      {"Summit_jsrun_n6_a1_g1_c7_brs", "summit", seeing_one_each(summit_masks, summit), summit_as_published},
      // A set for each socket, with three ranks: they share out its GPUs and processors.
      {"Summit_jsrun_n2_a3_g3_c21_brs",
       "summit",
       two_sets,
       {"0 04 0-27 m0 mlx5_0", "1 05 28-55 m0 mlx5_1", "2 06 56-83 m0 mlx5_0", "0 03 88-115 m8 mlx5_2",
        "1 04 116-143 m8 mlx5_3", "2 05 144-171 m8 mlx5_2"}},
      {"Summit_jsrun_n1_a6_g6_c42_bnone",
       "summit",
       seeing_all(repeated("0-83,88-171", 6), summit),
       {"0 04 0-27 m0 mlx5_0", "1 05 28-55 m0 mlx5_1", "2 06 56-83 m0 mlx5_0", "3 03 88-115 m8 mlx5_2",
        "4 04 116-143 m8 mlx5_3", "5 05 144-171 m8 mlx5_2"}},
      // mpibind has given a GPU and ten cores to each rank.
      {"Lassen_lrun_T4",
       "lassen",
       seeing_one_each({"8-47", "48-87", "96-135", "136-175"}, lassen),
       {"0 04 8-47 m0 mlx5_0", "0 05 48-87 m0 mlx5_1", "0 03 96-135 m8 mlx5_2", "0 04 136-175 m8 mlx5_3"}},
      // The masks ascend while the GPUs descend.
      {"Perlmutter_srun_n4_c32_cpu_bind_cores",
       "perlmutter",
       seeing_all(in_steps(0, 16, 16, 4, 64), perlmutter),
       {"0 03 0-15,64-79 m0 hsn3", "1 41 16-31,80-95 m1 hsn2", "2 82 32-47,96-111 m2 hsn1",
        "3 c1 48-63,112-127 m3 hsn0"},
       "bound 4 ranks of this node to processors that are far"},
      {"Perlmutter_srun_n4_cpu_bind_none",
       "perlmutter",
       seeing_all(repeated("0-127", 4), perlmutter),
       {"0 03 48-63,112-127 m3 hsn3", "1 41 32-47,96-111 m2 hsn2", "2 82 16-31,80-95 m1 hsn1",
        "3 c1 0-15,64-79 m0 hsn0"}},
      {"Perlmutter_srun_n4_c32_gpu_bind_closest",
       "perlmutter",
       seeing_one_each(in_steps(0, 16, 16, 4, 64), {perlmutter.rbegin(), perlmutter.rend()}),
       {"0 c1 0-15,64-79 m0 hsn0", "0 82 16-31,80-95 m1 hsn1", "0 41 32-47,96-111 m2 hsn2",
        "0 03 48-63,112-127 m3 hsn3"}},
      // The site's own script gives GPU 3 to local rank 0. Under the same masks with all GPUs visible we keep GPU 0 for
      // local rank 0, since programs ask for the GPU of their local rank, and tell what it costs.
      {"Polaris_mpiexec_depth_8_set_affinity_gpu_polaris",
       "polaris",
       polaris_script,
       {"0 c7 0-7,32-39 m0 hsn0", "0 85 8-15,40-47 m1 hsn1", "0 46 16-23,48-55 m2 hsn1", "0 07 24-31,56-63 m3 hsn0"}},
      {"Polaris_mpiexec_depth_8",
       "polaris",
       seeing_all(in_steps(0, 8, 8, 4, 32), polaris),
       {"0 07 0-7,32-39 m0 hsn1", "1 46 8-15,40-47 m1 hsn1", "2 85 16-23,48-55 m2 hsn0", "3 c7 24-31,56-63 m3 hsn0"},
       "local rank 0 has cpus 0-7,32-39, its GPU 0000:07:00.0 is near to cpus 24-31,56-63"},
      {"Polaris_mpiexec_cpu_bind_list_24_16_8_1",
       "polaris",
       seeing_all({"24", "16", "8", "1"}, polaris),
       {"0 07 24 m3 hsn1", "1 46 16 m2 hsn1", "2 85 8 m1 hsn0", "3 c7 1 m0 hsn0"}},
      {"Polaris_mpiexec_cpu_bind_none",
       "polaris",
       seeing_all(repeated("0-63", 4), polaris),
       {"0 07 24-31,56-63 m3 hsn1", "1 46 16-23,48-55 m2 hsn1", "2 85 8-15,40-47 m1 hsn0", "3 c7 0-7,32-39 m0 hsn0"}},
      // The order of the GPUs that the site's page shows: 4, 5, 2, 3, 6, 7, 0, 1.
      {"Frontier_srun_n8_c7_gpu_bind_closest",
       "frontier",
       seeing_one_each(in_steps(1, 8, 7, 8), {frontier[4], frontier[5], frontier[2], frontier[3], frontier[6],
                                              frontier[7], frontier[0], frontier[1]}),
       {"0 d1 1-7 m0 ", "0 d6 9-15 m0 ", "0 c9 17-23 m1 ", "0 ce 25-31 m1 ", "0 d9 33-39 m2 ", "0 de 41-47 m2 ",
        "0 c1 49-55 m3 ", "0 c6 57-63 m3 "}},
      {"Frontier_srun_n8_cpu_bind_none",
       "frontier",
       seeing_all(repeated("1-7,9-15,17-23,25-31,33-39,41-47,49-55,57-63", 8), frontier),
       {"0 c1 49-55 m3 ", "1 c6 57-63 m3 ", "2 c9 17-23 m1 ", "3 ce 25-31 m1 ", "4 d1 1-7 m0 ", "5 d6 9-15 m0 ",
        "6 d9 33-39 m2 ", "7 de 41-47 m2 "}},
      {"DgxA100_unbound",
       "dgx_a100",
       seeing_all(repeated("0-255", 8), dgx_a100),
       {"0 07 48-55,176-183 m3 mlx5_0", "1 0f 56-63,184-191 m3 mlx5_1", "2 47 16-23,144-151 m1 mlx5_2",
        "3 4e 24-31,152-159 m1 mlx5_3", "4 87 112-119,240-247 m7 mlx5_6", "5 90 120-127,248-255 m7 mlx5_7",
        "6 b7 80-87,208-215 m5 mlx5_8", "7 bd 88-95,216-223 m5 mlx5_9"}},
      {"DgxH100_unbound",
       "dgx_h100",
       seeing_all(repeated("0-223", 8), dgx_h100),
       {"0 1b 0-13,112-125 m0 mlx5_0", "1 43 14-27,126-139 m0 mlx5_3", "2 52 28-41,140-153 m0 mlx5_4",
        "3 61 42-55,154-167 m0 mlx5_5", "4 9d 56-69,168-181 m1 mlx5_6", "5 c3 70-83,182-195 m1 mlx5_9",
        "6 d1 84-97,196-209 m1 mlx5_10", "7 df 98-111,210-223 m1 mlx5_11"}},
      {"Gb200_unbound",
       "gb200",
       seeing_all(repeated("0-143", 4), {"0008:01:00.0", "0009:01:00.0", "0018:01:00.0", "0019:01:00.0"}),
       {"0 01 0-35 m0 mlx5_0", "1 01 36-71 m0 mlx5_1", "2 01 72-107 m1 mlx5_2", "3 01 108-143 m1 mlx5_3"}},
      {"Cloud_without_numa",
       "cloud",
       seeing_all(repeated("0-47", 4), {"0000:00:1b.0", "0000:00:1c.0", "0000:00:1d.0", "0000:00:1e.0"}),
       {"0 00 0-5,24-29 m0 eth0", "1 00 6-11,30-35 m0 eth0", "2 00 12-17,36-41 m0 eth0", "3 00 18-23,42-47 m0 eth0"}},
      // The GPU of the processor is not one that a rank computes on.
      {"Laptop", "laptop", seeing_all(repeated("0-3", 2), {}), {"- 0,2 m0 wlp2s0", "- 1,3 m0 wlp2s0"}},
  };
}

void PrintTo(const Site& site, std::ostream* out) {
  *out << site.name;
}

class PlacementAtSite : public ::testing::TestWithParam<Site> {};

TEST_P(PlacementAtSite, is_what_the_site_publishes) {
  const Site& site = GetParam();
  auto machine = fixture_machine(site.machine);
  if (!machine) GTEST_SKIP() << "no hwloc in this build";
  auto placement = place_ranks(*machine, site.request);
  ASSERT_TRUE(placement) << placement.error().message;
  Lists found;
  for (const RankPlacement& place : placement->ranks) found.push_back(line_of(place));
  EXPECT_EQ(found, site.expected);
  ASSERT_EQ(placement->notices.size(), site.notice == nullptr ? 0U : 1U);
  std::string part = site.notice == nullptr ? "" : site.notice;
  for (const std::string& notice : placement->notices) EXPECT_NE(notice.find(part), std::string::npos) << notice;
}

INSTANTIATE_TEST_SUITE_P(Sites, PlacementAtSite, ::testing::ValuesIn(sites()),
                         [](const auto& site) { return std::string(site.param.name); });

// A machine of two NUMA nodes with 8 cores and two GPUs each.
Machine made_up() {
  Machine machine;
  for (int node = 0; node < 2; ++node) {
    CpuMask cpus = CpuMask::range(node * 8, node * 8 + 7);
    machine.packages.push_back({node, cpus});
    machine.numa_nodes.push_back({node, node, cpus, 0});
    for (int cpu = node * 8; cpu < node * 8 + 8; ++cpu)
      machine.cores.push_back({node, node, -1, CpuMask::range(cpu, cpu)});
    machine.cpus |= cpus;
    for (int gpu = 0; gpu < 2; ++gpu)
      machine.devices.push_back(
          {PciDevice::Kind::gpu, "0000:0" + std::to_string(node * 2 + gpu) + ":00.0", 0x10de, 1, cpus, node, {}});
  }
  return machine;
}

const Lists four = {"0000:00:00.0", "0000:01:00.0", "0000:02:00.0", "0000:03:00.0"};

std::vector<int> ordinals(const PlacementRequest& request) {
  auto placement = place_ranks(made_up(), request);
  EXPECT_TRUE(placement) << placement.error().message;
  std::vector<int> found;
  for (const RankPlacement& place : placement->ranks) found.push_back(place.gpu);
  return found;
}

std::string why_not(const PlacementRequest& request) {
  auto placement = place_ranks(made_up(), request);
  EXPECT_FALSE(placement);
  return placement ? "" : placement.error().message;
}

TEST(Placement, gives_fewer_ranks_than_gpus_the_gpu_of_their_local_rank) {
  EXPECT_EQ(ordinals(seeing_all(repeated("0-15", 2), four)), (std::vector<int>{0, 1}));
}

TEST(Placement, shares_gpus_evenly_among_more_ranks_and_warns_once) {
  PlacementRequest request = seeing_all(repeated("0-15", 6), {four[0], four[1]});
  EXPECT_EQ(ordinals(request), (std::vector<int>{0, 1, 0, 1, 0, 1}));
  auto placement = place_ranks(made_up(), request);
  ASSERT_EQ(placement->notices.size(), 1U);
  EXPECT_NE(placement->notices[0].find("6 ranks of this node share 2 GPUs, up to 3 ranks on one"), std::string::npos)
      << placement->notices[0];
  request.sharing = GpuSharing::never;
  EXPECT_NE(why_not(request).find("6 ranks of this node share 2 GPUs, which is forbidden"), std::string::npos);
}

TEST(Placement, lets_ranks_of_slots_keep_the_gpu_of_their_slot) {
  PlacementRequest request = seeing_all(repeated("0-15", 4), four);
  auto sit_on = [&](const std::vector<int>& slots) {
    request.ranks.resize(slots.size(), request.ranks.front());
    for (std::size_t rank = 0; rank < slots.size(); ++rank) request.ranks[rank].slot = slots[rank];
  };
  sit_on({0, 1, 2, 3});
  EXPECT_EQ(ordinals(request), (std::vector<int>{0, 1, 2, 3}));
  sit_on({1, 2, 3});
  EXPECT_EQ(ordinals(request), (std::vector<int>{1, 2, 3})) << "local rank 0 has ended";
  sit_on({1, 2, 3, 0});
  EXPECT_EQ(ordinals(request), (std::vector<int>{1, 2, 3, 0})) << "a newcomer has its slot, and the last local rank";
  request.ranks[3].gpus = gpus({four[0]});
  EXPECT_EQ(ordinals(request), (std::vector<int>{1, 2, 3, 0})) << "it sees its own GPU alone";
}

TEST(Placement, lets_ranks_of_more_slots_than_gpus_share_and_never_move) {
  PlacementRequest request = seeing_all(repeated("0-15", 2), {four[0], four[1]});
  request.ranks[0].slot = 1;
  request.ranks[1].slot = 3;
  EXPECT_EQ(ordinals(request), (std::vector<int>{1, 1}));
  auto placement = place_ranks(made_up(), request);
  ASSERT_EQ(placement->notices.size(), 1U);
  EXPECT_NE(placement->notices[0].find("2 ranks of this node share 2 GPUs, up to 2 ranks on one"), std::string::npos)
      << placement->notices[0];
  request.sharing = GpuSharing::never;
  EXPECT_EQ(why_not(request),
            "2 ranks of this node share 2 GPUs (slots 1 and 3 have the GPU 0000:01:00.0), which is forbidden: give a "
            "node no more slots than it has GPUs, or allow it");
}

TEST(Placement, leaves_overlapping_masks_of_too_few_processors_as_they_are) {
  PlacementRequest request = seeing_all({"0", "0-1", "1"}, four);
  EXPECT_EQ(ordinals(request), (std::vector<int>{0, 1, 2}));
  request.ranks.pop_back();
  EXPECT_NE(why_not(request).find("masks contradict each other"), std::string::npos) << "2 ranks on 2 processors";
  request.ranks[0].slot = 2;
  request.ranks[1].slot = 1;
  EXPECT_EQ(ordinals(request), (std::vector<int>{2, 1})) << "slot 0 of three has ended";
  auto placement = place_ranks(made_up(), request);
  EXPECT_EQ(placement->ranks[0].cpus.to_string(), "0");
  EXPECT_EQ(placement->ranks[1].cpus.to_string(), "0-1");
  EXPECT_TRUE(placement->ranks[0].shares_cores && placement->ranks[1].shares_cores);
}

TEST(Placement, keeps_ranks_with_own_lists_from_each_others_gpus) {
  PlacementRequest request = seeing_all(repeated("0-15", 3), {});
  request.ranks[0].gpus = gpus({four[0], four[1]});
  request.ranks[1].gpus = gpus({four[0]});
  request.ranks[2].gpus = gpus({four[1], four[2]});
  EXPECT_EQ(ordinals(request), (std::vector<int>{1, 0, 1})) << "the second rank can only use the first GPU";
}

TEST(Placement, refuses_a_gpu_for_two_ranks_where_there_are_enough) {
  PlacementRequest request = seeing_one_each(repeated("0-15", 3), {four[0], four[1], four[1]});
  request.ranks[0].gpus = gpus({four[0], four[3]});
  std::string why = why_not(request);
  EXPECT_NE(why.find("local rank 1 and local rank 2 of this node would share the GPU 0000:01:00.0"), std::string::npos)
      << why;
  EXPECT_NE(why.find("CUDA_VISIBLE_DEVICES"), std::string::npos);
  request.sharing = GpuSharing::never;
  EXPECT_EQ(why_not(request), why);
  request.sharing = GpuSharing::always;
  EXPECT_EQ(ordinals(request), (std::vector<int>{0, 0, 0}));
}

TEST(Placement, draws_the_links_between_gpus_as_far_as_they_are_known) {
  const auto links = [](const Machine& machine, const PlacementRequest& request) {
    auto placement = place_ranks(machine, request);
    EXPECT_TRUE(placement);
    return placement ? describe_gpu_links(machine, placement->ranks) : "";
  };
  const PlacementRequest all = seeing_all(repeated("0-15", 4), four);
  const std::string unknown =
      "; NVLink is not known here: hwloc tells it where its NVML plugin is installed, and nvidia-smi topo -m does";
  Machine machine = made_up();
  EXPECT_EQ(
      links(machine, all),
      "links: PCIe in one NUMA node among GPUs 0, 1 and 2, 3; PCIe across NUMA nodes between all others" + unknown);
  EXPECT_EQ(links(machine, seeing_all(repeated("0-15", 2), {four[0]})), "") << "there is one GPU";
  EXPECT_EQ(links(machine, seeing_all(repeated("0-15", 2), {"0000:f1:00.0", "0000:f2:00.0"})),
            "links: at unknown places among GPUs 0, 1" + unknown);

  for (PciDevice& device : machine.devices) device.bridges = {device.bus_id + " port", "0000:aa:00.0"};
  for (const std::string& gpu : {four[2], four[3]})
    std::ranges::find(machine.devices, gpu, &PciDevice::bus_id)->bridges = {gpu + " port"};
  EXPECT_EQ(links(machine, all),
            "links: one PCIe switch among GPUs 0, 1; PCIe in one NUMA node among GPUs 2, 3; PCIe across NUMA nodes "
            "between all others" +
                unknown);

  machine.knows_nvlinks = true;
  machine.nvlinks = {{four[0], four[2], 25781}, {four[3], four[2], 25781}, {four[1], four[3], 50000}};
  EXPECT_EQ(links(machine, all),
            "links: NVLink, 50 GB/s, among GPUs 1, 3; NVLink, 26 GB/s, between GPUs 0-2, 2-3; one PCIe switch among "
            "GPUs 0, 1; PCIe across NUMA nodes between all others");
}

TEST(Placement, draws_nvlink_as_hwloc_has_read_it) {
  for (const auto& [name, expected] :
       {std::pair("summit",
                  "links: NVLink, 50 GB/s, among GPUs 0, 1, 2 and 3, 4, 5; PCIe across NUMA nodes between "
                  "all others"),
        {"lassen", "links: NVLink, 75 GB/s, among GPUs 0, 1 and 2, 3; PCIe across NUMA nodes between all others"},
        {"dgx_h100", "links: NVLink, 450 GB/s, among GPUs 0, 1, 2, 3, 4, 5, 6, 7"}}) {
    auto machine = fixture_machine(name);
    if (!machine) GTEST_SKIP() << "no hwloc in this build";
    std::vector<RankPlacement> ranks;
    for (const PciDevice& device : machine->devices) {
      if (device.kind != PciDevice::Kind::gpu) continue;
      const int number = static_cast<int>(ranks.size());
      ranks.emplace_back().gpu = number;
      ranks.back().identity.bus_id = device.bus_id;
    }
    EXPECT_EQ(describe_gpu_links(*machine, ranks), expected) << name;
  }
}

TEST(Placement, takes_the_parts_of_a_gpu_for_gpus) {
  PlacementRequest request = seeing_all(repeated("0-15", 2), {});
  request.ranks[0].gpus = {{four[2], "MIG-1", ""}};
  request.ranks[1].gpus = {{four[2], "MIG-2", ""}};
  EXPECT_EQ(ordinals(request), (std::vector<int>{0, 0}));
  auto placement = place_ranks(made_up(), request);
  EXPECT_TRUE(placement->notices.empty());
  EXPECT_EQ(placement->ranks[1].cpus.to_string(), "12-15");
  request.ranks[1].gpus = {{four[2], "MIG-1", ""}, {four[0], "GPU-1", ""}};
  EXPECT_EQ(ordinals(request), (std::vector<int>{0, 1}));
}

TEST(Placement, knows_a_gpu_by_its_bus_id_where_only_some_ranks_know_the_uuid) {
  PlacementRequest request = seeing_all(repeated("0-15", 2), {});
  request.ranks[0].gpus = {{four[0], "GPU-1", ""}, {four[1], "GPU-2", ""}};
  request.ranks[1].gpus = {{four[0], "", ""}, {four[1], "", ""}};
  EXPECT_EQ(ordinals(request), (std::vector<int>{0, 1}));
  request = seeing_all(repeated("0-15", 2), {});
  for (RankOnNode& rank : request.ranks) rank.gpus = {{"", "GPU-1", ""}, {"", "GPU-2", ""}};
  EXPECT_EQ(ordinals(request), (std::vector<int>{0, 1})) << "only the UUIDs are known";
}

TEST(Placement, leaves_a_rank_without_gpus_alone) {
  PlacementRequest request = seeing_all(repeated("0-15", 3), {four[2], four[3]});
  request.ranks[1].gpus.clear();
  EXPECT_EQ(ordinals(request), (std::vector<int>{0, -1, 1}));
  auto placement = place_ranks(made_up(), request);
  EXPECT_EQ(placement->ranks[1].cpus.to_string(), "0-7");
}

TEST(Placement, never_leaves_the_mask_of_a_rank) {
  // All cores near to the GPU of the first rank are those of the second.
  PlacementRequest request = seeing_all({"8-11", "0-7"}, four);
  auto placement = place_ranks(made_up(), request);
  ASSERT_TRUE(placement);
  EXPECT_EQ(placement->ranks[0].cpus.to_string(), "8-11");
  EXPECT_FALSE(placement->ranks[0].is_near_gpu);
  EXPECT_EQ(placement->ranks[0].memory_node, 1);
  EXPECT_EQ(placement->ranks[0].cores, 4);
  EXPECT_TRUE(placement->ranks[1].is_near_gpu);
}

TEST(Placement, names_the_flag_that_mends_masks_far_from_the_gpus) {
  PlacementRequest request = seeing_all({"8-11", "12-15", "0-3", "4-7"}, four);
  request.flags_to_unbind = "srun --cpu-bind=none";
  auto placement = place_ranks(made_up(), request);
  ASSERT_EQ(placement->notices.size(), 1U);
  EXPECT_EQ(placement->notices[0],
            "the launcher has bound 4 ranks of this node to processors that are far from the rank's GPU (local rank 0 "
            "has cpus 8-11, its GPU 0000:00:00.0 is near to cpus 0-7): start the ranks unbound (srun --cpu-bind=none), "
            "then each binds itself near to its GPU");
}

TEST(Placement, refuses_masks_that_contradict_each_other) {
  EXPECT_NE(why_not(seeing_all({"0-9", "8-15"}, four))
                .find("local rank 0 of this node may use cpus 0-9, local rank 1 "
                      "cpus 8-15"),
            std::string::npos);
  EXPECT_NE(why_not(seeing_all({"0-7", "0-15"}, four)).find("contradict"), std::string::npos);
  PlacementRequest request = seeing_all({"0-7", "8-15"}, four);
  request.ranks[1].mask = CpuMask();
  EXPECT_NE(why_not(request).find("local rank 1 may use no processor"), std::string::npos);
  EXPECT_NE(why_not({}).find("at least 1 rank"), std::string::npos);
}

// What must hold for any masks and lists.
void expect_sound(const Machine& machine, const PlacementRequest& request, const Placement& placement) {
  ASSERT_EQ(placement.ranks.size(), request.ranks.size());
  std::map<std::string, std::size_t> users;
  std::set<std::string> visible;
  std::size_t with_gpus = 0;
  for (std::size_t rank = 0; rank < request.ranks.size(); ++rank) {
    const RankOnNode& given = request.ranks[rank];
    const RankPlacement& place = placement.ranks[rank];
    EXPECT_FALSE(place.cpus.empty());
    EXPECT_TRUE(given.mask.contains(place.cpus));
    EXPECT_EQ(place.gpu < 0, given.gpus.empty());
    for (const VisibleGpu& gpu : given.gpus) visible.insert(gpu.bus_id);
    if (place.gpu < 0) continue;
    ++with_gpus;
    ASSERT_LT(place.gpu, static_cast<int>(given.gpus.size()));
    EXPECT_EQ(place.identity.bus_id, given.gpus[static_cast<std::size_t>(place.gpu)].bus_id);
    ++users[place.identity.bus_id];
    EXPECT_NE(machine.device(place.identity.bus_id), nullptr);
  }
  if (with_gpus > visible.size()) return;
  for (const auto& [bus_id, count] : users) EXPECT_EQ(count, 1U) << bus_id;
}

TEST(Placement, is_sound_for_any_masks_and_lists) {
  Machine machine = made_up();
  std::mt19937 random(7);
  auto up_to = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most + 1)); };
  int placed = 0;
  for (int round = 0; round < 2000 && !::testing::Test::HasFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    PlacementRequest request;
    // Equal masks within groups of ranks, disjoint masks between them.
    std::vector<CpuMask> masks(static_cast<std::size_t>(1 + up_to(3)));
    for (int cpu = 0; cpu < 16; ++cpu) masks[static_cast<std::size_t>(cpu) % masks.size()].set(cpu);
    const int ranks = 1 + up_to(11);
    const bool is_one_list = up_to(1) == 0;
    for (int rank = 0; rank < ranks; ++rank) {
      RankOnNode each{masks[static_cast<std::size_t>(up_to(static_cast<int>(masks.size()) - 1))], {}};
      Lists list = four;
      std::shuffle(list.begin(), list.end(), random);
      list.resize(static_cast<std::size_t>(up_to(4)));
      each.gpus = gpus(list);
      if (is_one_list && rank > 0) each.gpus = request.ranks[0].gpus;
      request.ranks.push_back(std::move(each));
    }
    auto placement = place_ranks(machine, request);
    EXPECT_TRUE(placement || !is_one_list);
    if (!placement) continue;
    ++placed;
    expect_sound(machine, request, *placement);
    const auto count = static_cast<int>(request.ranks[0].gpus.size());
    for (int rank = 0; is_one_list && count > 0 && rank < ranks; ++rank)
      EXPECT_EQ(placement->ranks[static_cast<std::size_t>(rank)].gpu, rank % count);
  }
  EXPECT_GT(placed, 1000);
}

}  // namespace
}  // namespace hvd::topology
