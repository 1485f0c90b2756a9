// Tests the judges of --preflight by tables: each has facts and the expected findings.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "launcher/preflight/check.hpp"
#include "launcher/preflight/fabrics.hpp"
#include "launcher/preflight/gpu_measurement.hpp"
#include "launcher/preflight/link_measurement.hpp"
#include "launcher/preflight/page.hpp"
#include "launcher/preflight/preflight.hpp"
#include "launcher/preflight/probe.hpp"

namespace hvd::launcher::preflight {
namespace {

Facts healthy(int node, int local) {
  const std::string host = "n" + std::to_string(node), address = "10.0.0." + std::to_string(node);
  const std::string local_text = std::to_string(local), rank = std::to_string(2 * (node - 1) + local);
  Facts facts{{"host", host},
              {"node", host},
              {"pid", "7"},
              {"rank", rank},
              {"size", "6"},
              {"has_looked", "yes"},
              {"is_through", "yes"},
              {"bootstrap", "pmix"},
              {"local_rank", local_text},
              {"gpus", "0000:01:00.0,0000:02:00.0"},
              {"gpus_near", "0-3;4-7"},
              {"cpus", local == 0 ? "0-3" : "4-7"},
              {"cpus_online", "8"},
              {"release", "Horovod 1.0.0, protocol 6"},
              {"shm_bytes", "8000000000"},
              {"shm_free", "8000000000"},
              {"memory_free", "8000000000"},
              {"nofile", "65536"},
              {"memlock", "unlimited"},
              {"has_fabric", "no"},
              {"addresses", "127.0.0.1," + address}};
  if (local != 0) return facts;
  facts.add({{"first", "yes"},
             {"python", "Python 3.11.2, horovod 1.0.0, torch 2.1"},
             {"mpi", "Open MPI 4.1.4"},
             {"nccl", "none"},
             {"scratch", "/tmp"},
             {"scratch_fault", ""},
             {"scratch_free", "8000000000"},
             {"interface_mbit", "0"}});
  std::vector<LinkResult> links;
  for (int other = 1; other <= 3; ++other) {
    if (other != node) links.push_back({"n" + std::to_string(other), 10, 10000, 10000, 0, ""});
    facts.set("resolves n" + std::to_string(other), "10.0.0." + std::to_string(other));
  }
  facts.set("links", text_of(links));
  return facts;
}

// Three nodes with two ranks each.
Allocation healthy_allocation() {
  Allocation allocation{6, {"n1", "n2", "n3"}, "srun", "", false, {}};
  for (int node = 1; node <= 3; ++node)
    for (int local = 0; local < 2; ++local) allocation.probes.push_back(healthy(node, local));
  return allocation;
}

std::vector<Finding> findings_of(const Allocation& allocation, std::string_view check) {
  for (const Judged& each : judge(allocation))
    if (each.check == check) return each.verdict.findings;
  return {};
}

TEST(Preflight, finds_nothing_on_healthy_nodes) {
  for (const Judged& each : judge(healthy_allocation())) EXPECT_EQ(each.verdict.findings.size(), 0u) << each.check;
}

TEST(Preflight, names_the_host_of_each_fault) {
  const struct {
    const char* check;
    Facts of_first;  // facts of n2's first probe that replace the usual ones
    const char* words;
  } rows[] = {
      {"world", {{"size", "5"}}, "believes in 5"},
      {"world", {{"rank", "0"}}, "also runs on n1"},
      {"gpus", {{"gpus", "0000:01:00.0"}}, "1 GPU"},
      {"gpus", {{"visible_gpus", "0000:02:00.0"}}, "take GPU 0000:02:00.0"},
      {"gpus", {{"visible_gpus", ""}}, "visible: ''"},
      {"gpus", {{"cpus", "4-7"}}, "bound to 4-7"},
      {"binding", {{"cpus", "2-5"}}, "share processors 4-5"},
      {"binding", {{"cpus", "0-7"}}, "may use all 8 processors"},
      {"binding", {{"cpus", "2-5"}, {"binds_itself", "yes"}}, "share processors 4-5"},
      {"horovod", {{"release", "Horovod 0.9.0, protocol 4"}}, "0.9.0"},
      {"python", {{"python", "Python 3.9.1, no horovod, no torch"}}, "3.9.1"},
      {"mpi, nccl", {{"mpi", "MPICH 4.0"}}, "MPICH"},
      {"mpi, nccl", {{"nccl", "2.18.3"}}, "2.18.3"},
      {"container", {{"image", "other.sif"}}, "other.sif"},
      {"container", {{"pmix_host", "5.0.1"}, {"pmix_here", "3.2.3"}, {"meeting_error", "refused"}}, "3.2.3"},
      {"names", {{"resolves n3", "10.0.0.99"}}, "10.0.0.99"},
      {"names", {{"resolves n3", ""}}, "not known"},
      {"memory", {{"shm_free", "1000000"}}, "977 KiB"},
      {"memory", {{"memory_free", "1000000"}, {"memory_limited_by", "a control group"}}, "control group"},
      {"limits", {{"nofile", "256"}}, "256"},
      {"limits", {{"memlock", "65536"}}, "64 KiB"},
      {"TMPDIR", {{"scratch_fault", "Read-only file system"}}, "Read-only"},
      {"TMPDIR", {{"scratch_free", "4096"}}, "4.0 KiB"},
      {"links", {{"links", "n1|10|900|9000|0|\nn3|10|900|9000|0|\n"}}, "900 Mbit/s"},
      {"links", {{"links", "n1|9000|9000|9000|0|\nn3|9000|9000|9000|0|\n"}}, "9000 us"},
      {"links", {{"links", "n1|0|0|0|0|cannot connect\n"}}, "none to n1"},
      {"fabric", {{"fabric", "mlx5_0"}}, "mlx5_0"},
      {"fabric", {{"interface_mbit", "400000"}}, "10.0 Gbit/s"},
      {"clocks", {{"links", "n1|10|9000|9000|-3|\nn3|10|9000|9000|-3|\n"}}, "3.000 s ahead"},
      {"clocks", {{"links", "n1|10|9000|9000|3|\nn3|10|9000|9000|3|\n"}}, "3.000 s behind"},
  };
  for (const auto& row : rows) {
    Allocation allocation = healthy_allocation();
    allocation.probes[2].add(row.of_first);
    const auto findings = findings_of(allocation, row.check);
    EXPECT_TRUE(std::ranges::any_of(findings,
                                    [&](const Finding& finding) {
                                      return finding.host == "n2" && finding.found.find(row.words) != std::string::npos;
                                    }))
        << row.check << ": " << row.words;
    EXPECT_TRUE(std::ranges::all_of(findings, [](const Finding& finding) { return finding.host == "n2"; }))
        << row.words;
    EXPECT_TRUE(std::ranges::none_of(findings, [](const Finding& finding) { return finding.remedy.empty(); }));
  }
}

// Four nodes with three ranks each, whose GPUs have been measured.
Allocation allocation_with_gpus() {
  Allocation allocation{12, {"n1", "n2", "n3", "n4"}, "srun", "", false, {}};
  for (int node = 1; node <= 4; ++node)
    for (int local = 0; local < 3; ++local) {
      Facts probe = healthy(node, local);
      probe.add({{"driver", "12.8"},
                 {"gpu_name", "H100"},
                 {"gpu_uuid", "GPU-" + std::to_string(node) + std::to_string(local)},
                 {"gpus", ""},
                 {"gpu_node", "230.5"},
                 {"gpu_partner", "150.1"},
                 {"gpu_world", "90.0"},
                 {"gpu_rail", "24.2"}});
      allocation.probes.push_back(probe);
    }
  return allocation;
}

TEST(Preflight, names_the_host_and_the_rank_of_a_slow_or_wrong_gpu) {
  EXPECT_EQ(findings_of(allocation_with_gpus(), "gpu links").size(), 0u);
  const struct {
    Facts of_one;  // facts of n2's second rank
    const char* words;
    bool of_first;  // the fact is one of the node
  } rows[] = {
      {{{"gpu_node", "60.0"}}, "60 GB/s", true},
      {{{"gpu_partner", "30.0"}}, "30 GB/s at best by local rank 1 (H100, GPU-21)", false},
      {{{"gpu_rail", "2.5"}}, "2.5 GB/s at best by local rank 1 (H100, GPU-21)", false},
      {{{"gpu_uuid", "GPU-20"}}, "and local rank 0 take the same", false},
      {{{"gpu_trouble", "NCCL was not found"}}, "local rank 1: NCCL was not found", false},
      {{{"gpu_error", "the start has not ended"}}, "local rank 1: the start has not ended", false},
      {{{"nccl_fault", "may hang"}}, "may hang", false},
      {{{"driver", "12.2"}}, "12.2", true},
      {{{"gpu_name", "A100"}}, "A100", true},
  };
  for (const auto& row : rows) {
    Allocation allocation = allocation_with_gpus();
    allocation.probes[row.of_first ? 3 : 4].add(row.of_one);
    const auto findings = findings_of(allocation, "gpu links");
    ASSERT_EQ(findings.size(), 1u) << row.words;
    EXPECT_EQ(findings[0].host, "n2");
    EXPECT_NE(findings[0].found.find(row.words), std::string::npos) << findings[0].found;
    EXPECT_FALSE(findings[0].remedy.empty());
  }
}

TEST(Preflight, lets_each_rank_meet_those_of_its_node_and_its_like_on_others) {
  EXPECT_EQ(partners_in_node({4, 5}, 5), std::vector<int>{0});
  std::vector<int> met;
  for (const int place : partners_in_node({4, 5, 6}, 6))
    if (place >= 0) met.push_back(place);
  std::ranges::sort(met);
  EXPECT_EQ(met, (std::vector<int>{0, 1}));
  const std::vector<int> nodes{0, 0, 1, 1, 2};  // the last node has one rank
  for (int rank = 0; rank < 5; ++rank) {
    const auto partners = partners_on_other_nodes(nodes, rank);
    for (std::size_t round = 0; round < partners.size(); ++round) {
      if (partners[round] < 0) continue;
      EXPECT_NE(nodes[static_cast<std::size_t>(partners[round])], nodes[static_cast<std::size_t>(rank)]);
      EXPECT_EQ(partners_on_other_nodes(nodes, partners[round])[round], rank);
    }
  }
  EXPECT_EQ(partners_on_other_nodes({0, 1}, 0), std::vector<int>{1});
}

TEST(Preflight, knows_what_ranks_do_themselves_where_there_are_gpus) {
  Allocation allocation = healthy_allocation();
  for (std::size_t i = 0; i < allocation.probes.size(); ++i) {
    Facts& probe = allocation.probes[i];
    probe.set("binds_itself", "yes");
    probe.set("cpus", i < 2 ? "0-7" : i < 4 ? "2-5" : probe.get("cpus"));  // not bound, one mask, a mask each
    probe.set("visible_gpus", i % 2 == 0 ? "MIG-a" : "MIG-b");             // parts of one GPU
  }
  EXPECT_EQ(findings_of(allocation, "binding").size(), 0u);
  EXPECT_EQ(findings_of(allocation, "gpus").size(), 0u);
}

TEST(Preflight, reads_which_gpus_a_rank_sees_as_the_driver_would) {
  const std::string root = ::testing::TempDir() + "preflight-gpus-" + std::to_string(::getpid());
  for (const char* bus : {"01", "02"}) {
    const std::string folder = root + "/proc/driver/nvidia/gpus/0000:" + bus + ":00.0";
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/information")
        << "Model: Some\nGPU UUID: GPU-" << bus << "\nDevice Minor: " << bus[1] << "\n";
    std::filesystem::create_directories(root + "/dev");
    std::ofstream(root + "/dev/nvidia" + bus[1]) << "";
  }
  auto gathered = [&](const char* name, const std::string& value) {
    Environment environment;
    environment.set("HOROVOD_GPU_ROOT", root);
    environment.set(name, value);
    const Place place{environment, {}, "", true};
    Facts facts;
    for (const Check* check : checks())
      if (check == &gpus_check || check == &binding_check) check->gather(place, facts);
    return facts;
  };
  EXPECT_EQ(gathered("CUDA_VISIBLE_DEVICES", "GPU-02,0").get("visible_gpus"), "0000:02:00.0");
  EXPECT_EQ(gathered("CUDA_VISIBLE_DEVICES", "1,0").get("visible_gpus"), "0000:02:00.0,0000:01:00.0");
  EXPECT_EQ(gathered("CUDA_VISIBLE_DEVICES", "1").get("binds_itself"), "yes");
  EXPECT_FALSE(gathered("HOROVOD_BIND", "0").has("binds_itself"));
  EXPECT_FALSE(gathered("HOROVOD_GPU_ROOT", "/nonexistent").has("visible_gpus"));
  std::filesystem::remove_all(root);
}

TEST(Preflight, names_the_host_on_which_a_rank_does_not_belong_whichever_comes_first) {
  for (int sick = 0; sick < 6; ++sick)
    for (int rank = 0; rank < 6; ++rank) {
      Allocation allocation = healthy_allocation();
      if (sick / 2 == rank / 2) continue;
      const std::string host = allocation.probes[sick].get("host"), other = allocation.probes[rank].get("host");
      allocation.probes[sick].set("rank", rank);
      for (bool comes_first : {true, false}) {
        std::ranges::stable_partition(allocation.probes,
                                      [&](const Facts& probe) { return (probe.get("host") == host) == comes_first; });
        const auto findings = findings_of(allocation, "world");
        ASSERT_EQ(findings.size(), 1u);
        EXPECT_EQ(findings[0].host, host);
        EXPECT_EQ(findings[0].found, "rank " + std::to_string(rank) + " also runs on " + other);
      }
    }
}

TEST(Preflight, names_a_host_that_says_nothing_and_not_the_meeting_that_failed) {
  Allocation allocation = healthy_allocation();
  allocation.probes.resize(4);
  for (Facts& probe : allocation.probes) probe.set("meeting_error", "2 ranks did not come");
  const auto findings = findings_of(allocation, "start");
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].host, "n3");
  EXPECT_TRUE(findings_of(allocation, "world").empty());
}

TEST(Preflight, names_a_probe_that_hangs_and_judges_nothing_else_of_it) {
  Allocation allocation = healthy_allocation();
  allocation.probes[4] = Facts{{"host", "n3"}, {"node", "n3"}, {"pid", "12"}, {"first", "yes"}};
  for (const Judged& each : judge(allocation))
    for (const Finding& finding : each.verdict.findings) {
      EXPECT_STREQ(each.check, "start");
      EXPECT_EQ(finding.host, "n3");
    }
}

TEST(Preflight, names_the_host_that_a_failed_start_is_about) {
  Allocation allocation = healthy_allocation();
  allocation.probes.clear();
  allocation.trouble = "horovodrun: the host n2 cannot be used: no route";
  const auto findings = findings_of(allocation, "start");
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].host, "n2");
}

TEST(Preflight, takes_a_fabric_for_unused_where_all_goes_over_sockets) {
  Allocation allocation = healthy_allocation();
  for (Facts& probe : allocation.probes) probe.set("fabric", "mlx5_0,mlx5_1");
  EXPECT_TRUE(findings_of(allocation, "fabric").empty());
  allocation.probes[2].set("FI_PROVIDER", "tcp");
  EXPECT_EQ(findings_of(allocation, "fabric").at(0).host, "n2");
  allocation.probes[2].set("FI_PROVIDER", "verbs");
  EXPECT_TRUE(findings_of(allocation, "fabric").empty());
  for (const Fabric& fabric : fabrics()) EXPECT_EQ(fabric_of(std::string(fabric.devices) + "0"), &fabric);
}

TEST(Preflight, names_the_pair_of_nodes_that_do_not_reach_each_other) {
  Allocation allocation = healthy_allocation();
  allocation.probes[0].set("links", "n2|0|0|0|0|did not connect\nn3|10|9000|9000|0|\n");
  allocation.probes[2].set("links", "n1|0|0|0|0|cannot connect\nn3|10|9000|9000|0|\n");
  const auto findings = findings_of(allocation, "links");
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].severity, Severity::fault);
  EXPECT_EQ(findings[0].host, "n2");
  EXPECT_EQ(findings[0].found, "none to n1, though both reach other nodes");
}

TEST(Preflight, blames_no_pair_for_a_node_that_reaches_nobody_or_comes_late) {
  Allocation allocation = healthy_allocation();
  allocation.probes[0].set("links", "n2|0|0|0|0|did not connect\nn3|0|0|0|0|did not connect\n");
  for (std::size_t at : {2u, 4u})
    allocation.probes[at].set(
        "links", "n1|0|0|0|0|" + std::string(cannot_connect) + "\n" + (at == 2 ? "n3" : "n2") + "|10|9000|9000|0|\n");
  auto findings = findings_of(allocation, "links");
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].host, "n1");
  allocation = healthy_allocation();
  allocation.probes[0].set("links", "n2|0|0|0|0|did not connect\nn3|10|9000|9000|0|\n");
  allocation.probes[2].set("links", "n1|5|0|0|0|the connection was too slow, or broke\nn3|10|9000|9000|0|\n");
  EXPECT_EQ(findings_of(allocation, "links").size(), 0u);
  allocation.probes[0].set("links", "n2|0|0|0|0|no time was left\nn3|10|9000|9000|0|\n");
  allocation.probes[2].set("links", "n1|0|0|0|0|cannot connect\nn3|10|9000|9000|0|\n");
  EXPECT_EQ(findings_of(allocation, "links").size(), 0u) << "n1 had ended";
}

TEST(Preflight, tells_a_node_that_cannot_be_connected_to_from_one_that_does_not_come) {
  auto here = posix::listen_for_peers("", {});
  ASSERT_TRUE(here) << here.error().message;
  const std::vector<LinkEnd> ends{{"n1", "127.0.0.1:1"}, {"n2", here->endpoints}};  // nobody listens on n1
  auto results = measure_links(*here, 1, ends, std::string(32, 's'), Deadline::after(std::chrono::seconds(10)));
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].fault, cannot_connect);
  results = measure_links(*here, 0, ends, std::string(32, 's'), Deadline::after(std::chrono::seconds(1)));
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].fault, did_not_connect);
  results = measure_links(*here, 1, ends, std::string(32, 's'), Deadline::after(std::chrono::milliseconds(0)));
  EXPECT_EQ(results[0].fault, "no time was left");
}

TEST(Preflight, lets_every_node_meet_every_other_once) {
  for (int nodes = 2; nodes <= 9; ++nodes) {
    std::vector<int> meetings(static_cast<std::size_t>(nodes * nodes), 0);
    for (const auto& partners : rounds_of(nodes, 100))
      for (int me = 0; me < nodes; ++me) {
        int partner = partners[static_cast<std::size_t>(me)];
        if (partner < 0) continue;
        EXPECT_EQ(partners[static_cast<std::size_t>(partner)], me);
        ++meetings[static_cast<std::size_t>(me * nodes + partner)];
      }
    for (int me = 0; me < nodes; ++me)
      for (int other = 0; other < nodes; ++other)
        EXPECT_EQ(meetings[static_cast<std::size_t>(me * nodes + other)], me == other ? 0 : 1) << nodes;
  }
  EXPECT_EQ(rounds_of(1000, 7).size(), 7u);
}

TEST(Preflight, reads_the_lines_of_probes_behind_what_launchers_put_before_them) {
  const Facts facts{{"host", "n1"}, {"rank", "1"}, {"odd", "a=b&c %\n|\"d\""}};
  ProbeLines lines;
  EXPECT_TRUE(lines.take("[1]<stdout>:horovod-probe:ab12 " + facts.encoded()));
  EXPECT_TRUE(lines.take("horovod-probe:cd34 " + Facts{{"rank", "0"}}.encoded()));
  EXPECT_TRUE(lines.take("3: horovod-probe:ab12 " + Facts{{"more", "x"}}.encoded() + "\r"));
  EXPECT_FALSE(lines.take("hello"));
  EXPECT_FALSE(lines.take("horovod-probe:"));
  ASSERT_EQ(lines.probes().size(), 2u);
  EXPECT_EQ(lines.probes()[1].get("odd"), facts.get("odd"));
  EXPECT_EQ(lines.probes()[1].get("more"), "x");
}

TEST(Preflight, writes_a_page_and_json_with_the_same_findings) {
  Allocation allocation = healthy_allocation();
  allocation.probes[2].set("nofile", "256");
  allocation.probes[4].set("nofile", "256");
  const auto judged = judge(allocation);
  EXPECT_TRUE(has_fault(judged));
  const std::string page = page_of(judged, allocation, 1.5);
  EXPECT_NE(page.find("limits     FAULT n2, n3: 256 open files"), std::string::npos) << page;
  EXPECT_NE(page.find("2 faults, 0 notes, in 1.5 s"), std::string::npos) << page;
  const std::string json = json_of(judged, allocation, 1.5);
  EXPECT_NE(json.find("{\"severity\": \"fault\", \"host\": \"n3\""), std::string::npos) << json;
  EXPECT_NE(json.find("{\"check\": \"limits\", \"ok\": false, \"summary\": \"\""), std::string::npos) << json;
}

}  // namespace
}  // namespace hvd::launcher::preflight
