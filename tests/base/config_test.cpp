#include "base/settings/config.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace hvd {
namespace {

struct Reading {
  Result<Config> config;
  std::vector<std::string> warnings;
};

Reading read(std::map<std::string, std::string, std::less<>> variables) {
  std::vector<std::string> warnings;
  auto config = Config::from(Environment(std::move(variables)), warnings);
  return {std::move(config), std::move(warnings)};
}

std::string complaint_about(const std::string& name, const std::string& value) {
  auto reading = read({{name, value}});
  if (reading.config) return "";
  EXPECT_EQ(reading.config.error().code, ErrorCode::invalid_argument);
  return reading.config.error().message;
}

TEST(Config, of_an_empty_environment_is_the_default) {
  auto reading = read({});
  ASSERT_TRUE(reading.config);
  EXPECT_EQ(*reading.config, Config{});
  EXPECT_TRUE(reading.warnings.empty());
}

TEST(Config, table_shows_the_defaults_that_the_struct_has) {
  for (const KnobRow& knob : knobs()) {
    if (*knob.default_value == '\0') continue;
    auto reading = read({{knob.name, knob.default_value}});
    ASSERT_TRUE(reading.config) << knob.name;
    EXPECT_EQ(*reading.config, Config{}) << knob.name << "=" << knob.default_value;
    EXPECT_TRUE(reading.warnings.empty()) << knob.name << ": asking for the default asks for nothing";
  }
}

TEST(Config, takes_every_knob_of_its_own) {
  auto reading = read({{"HOROVOD_FUSION_THRESHOLD", "0"},
                       {"HOROVOD_DEVICE_FUSION_THRESHOLD", "1048576"},
                       {"HOROVOD_CYCLE_TIME", "2.5"},
                       {"HOROVOD_CACHE_CAPACITY", "7"},
                       {"HOROVOD_DISABLE_GROUP_FUSION", "1"},
                       {"HOROVOD_STALL_CHECK_DISABLE", "true"},
                       {"HOROVOD_STALL_CHECK_TIME_SECONDS", "5"},
                       {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "+10"},
                       {"HOROVOD_START_TIMEOUT", " 3 "},
                       {"HOROVOD_BOOTSTRAP", "single"},
                       {"HOROVOD_ALGORITHM", "allreduce=ring"},
                       {"HOROVOD_SLAB_CHUNK", "131072"},
                       {"HOROVOD_REQUIRE_FABRIC", "yes"},
                       {"HOROVOD_GLOO_IFACE", "ib0,eth0"},
                       {"HOROVOD_PORT_RANGE", "20000 - 20100"},
                       {"HOROVOD_PEER_TIMEOUT", "2.5"},
                       {"HOROVOD_LOG_LEVEL", "Debug"},
                       {"HOROVOD_LOG_HIDE_TIME", "on"}});
  ASSERT_TRUE(reading.config) << reading.config.error().message;
  Config expected;
  expected.fusion_threshold_bytes = 0;
  expected.device_fusion_threshold_bytes = 1 << 20;
  expected.cycle_time_ms = 2.5;
  expected.cache_capacity = 7;
  expected.disable_group_fusion = true;
  expected.stall_check_disable = true;
  expected.stall_check_time_s = 5;
  expected.stall_shutdown_time_s = 10;
  expected.start_timeout_s = 3;
  expected.bootstrap = "single";
  expected.algorithm = "allreduce=ring";
  expected.slab_chunk_bytes = 131072;
  expected.require_fabric = true;
  expected.network_interfaces = "ib0,eth0";
  expected.port_range = {20000, 20100};
  expected.peer_timeout_s = 2.5;
  expected.log = {log::Level::debug, true};
  EXPECT_EQ(*reading.config, expected);
  EXPECT_TRUE(reading.warnings.empty());
}

TEST(Config, reads_flags_as_horovod_does_and_as_people_write_them) {
  for (const char* on : {"1", "2", "true", "TRUE", "on", "yes"})
    EXPECT_TRUE(read({{"HOROVOD_REQUIRE_FABRIC", on}}).config.value().require_fabric) << on;
  for (const char* off : {"0", "-1", "false", "off", "No", ""})
    EXPECT_FALSE(read({{"HOROVOD_REQUIRE_FABRIC", off}}).config.value().require_fabric) << off;
}

TEST(Config, refuses_a_malformed_value_and_names_variable_value_and_expectation) {
  EXPECT_EQ(complaint_about("HOROVOD_CYCLE_TIME", "fast"),
            "HOROVOD_CYCLE_TIME=fast: expected a number (milliseconds) not below 0, found 'fast'; "
            "correct it, or unset it for the default 1");
  EXPECT_NE(complaint_about("HOROVOD_LOG_LEVEL", "loud").find("trace | debug | info | warning | error | fatal"),
            std::string::npos);
  EXPECT_NE(complaint_about("HOROVOD_SLAB_CHUNK", "100").find("from 4096 to 1073741824"), std::string::npos);
  for (const char* value : {"12x", "1.5", "-1", "0x10", "(None,)", "99999999999999999999", "1 2"})
    EXPECT_NE(complaint_about("HOROVOD_FUSION_THRESHOLD", value), "") << value;
  for (const char* value : {"-1", "nan", "inf", "1e999", "2s"})
    EXPECT_NE(complaint_about("HOROVOD_STALL_CHECK_TIME_SECONDS", value), "") << value;
  for (const char* value : {"maybe", "1.5", "truee"})
    EXPECT_NE(complaint_about("HOROVOD_REQUIRE_FABRIC", value), "") << value;
  for (const char* value : {"20000", "20100-20000", "0-10", "1-65536", "-", "a-b", "1-2-3", "20000-"})
    EXPECT_NE(complaint_about("HOROVOD_PORT_RANGE", value).find("as in 20000-20100"), std::string::npos) << value;
  EXPECT_NE(complaint_about("HOROVOD_PEER_TIMEOUT", "0.5").find("not below 1"), std::string::npos);
  EXPECT_NE(complaint_about("HOROVOD_CONTROLLER", "pigeon"), "");
  EXPECT_NE(complaint_about("HOROVOD_SIZE", "0"), "");
}

TEST(Config, takes_an_empty_value_for_an_unset_one) {
  auto reading = read({{"HOROVOD_CYCLE_TIME", ""}, {"HOROVOD_LOG_LEVEL", " "}});
  ASSERT_TRUE(reading.config);
  EXPECT_EQ(*reading.config, Config{});
}

TEST(Config, warns_of_an_unknown_name_with_the_nearest_known_one) {
  auto reading = read({{"HOROVOD_FUSION_TRESHOLD", "1"}, {"HOROVOD_QWERTZUIOP", "1"}, {"PATH", "/bin"}});
  ASSERT_TRUE(reading.config);
  EXPECT_EQ(reading.config->fusion_threshold_bytes, Config{}.fusion_threshold_bytes);
  ASSERT_EQ(reading.warnings.size(), 2u);
  EXPECT_EQ(reading.warnings[0],
            "unknown variable HOROVOD_FUSION_TRESHOLD has no effect; did you mean HOROVOD_FUSION_THRESHOLD?");
  EXPECT_EQ(reading.warnings[1],
            "unknown variable HOROVOD_QWERTZUIOP has no effect; horovodrun --help lists the known ones");
}

TEST(Config, says_so_when_a_known_variable_asks_for_what_does_not_exist_yet) {
  auto reading =
      read({{"HOROVOD_AUTOTUNE_LOG", "/tmp/t.csv"}, {"HOROVOD_AUTOTUNE", "0"}, {"HOROVOD_CONTROLLER", "Gloo"}});
  ASSERT_TRUE(reading.config);
  ASSERT_EQ(reading.warnings.size(), 1u);
  EXPECT_NE(reading.warnings[0].find("HOROVOD_AUTOTUNE_LOG=/tmp/t.csv has no effect in this version"),
            std::string::npos);
}

TEST(Config, accepts_what_launchers_set_without_a_word) {
  auto reading = read({{"HOROVOD_RANK", "3"},
                       {"HOROVOD_SIZE", "4"},
                       {"HOROVOD_LOCAL_RANK", "3"},
                       {"HOROVOD_LOCAL_SIZE", "4"},
                       {"HOROVOD_CROSS_RANK", "0"},
                       {"HOROVOD_CROSS_SIZE", "1"},
                       {"HOROVOD_HOSTNAME", "n12"},
                       {"HOROVOD_LOCAL_STORE", "@x"},
                       {"HOROVOD_LOCAL_STORE_SECRET", "00"}});
  EXPECT_TRUE(reading.config);
  EXPECT_TRUE(reading.warnings.empty());
}

TEST(Config, tells_what_is_wrong_with_a_single_value) {
  EXPECT_EQ(fault_in("HOROVOD_CYCLE_TIME", "fast"), complaint_about("HOROVOD_CYCLE_TIME", "fast"));
  EXPECT_EQ(fault_in("HOROVOD_CYCLE_TIME", "2"), "");
  EXPECT_EQ(fault_in("HOROVOD_CYCLE_TIME", ""), "");
  EXPECT_EQ(fault_in("NCCL_IB_DISABLE", "fast"), "");
}

TEST(OneKnob, is_read_as_a_config_reads_it) {
  const std::map<std::string, bool> flags = {{"off", false}, {"No", false}, {" 0", false},  {"+0", false}, {"+1", true},
                                             {"on", true},   {" 1 ", true}, {"YES ", true}, {"", true},    {" ", true}};
  for (const auto& [value, is_set] : flags) {
    const Environment environment({{"HOROVOD_BIND", value}});
    EXPECT_EQ(is_on(environment, "HOROVOD_BIND").value(), is_set) << value;
    std::vector<std::string> warnings;
    EXPECT_EQ(Config::from(environment, warnings)->bind, is_set) << value;
  }
  const std::map<std::string, double> numbers = {{"20.5", 20.5}, {"+20", 20}, {" 20\t", 20}, {"", 10}, {" ", 10}};
  for (const auto& [value, seconds] : numbers) {
    const Environment environment({{"HOROVOD_PEER_TIMEOUT", value}});
    EXPECT_EQ(number_of(environment, "HOROVOD_PEER_TIMEOUT").value(), seconds) << value;
    std::vector<std::string> warnings;
    EXPECT_EQ(Config::from(environment, warnings)->peer_timeout_s, seconds) << value;
  }
}

TEST(OneKnob, has_the_default_of_the_table_or_of_the_caller) {
  EXPECT_FALSE(is_on(Environment(), "HOROVOD_REQUIRE_FABRIC").value());
  EXPECT_EQ(number_of(Environment(), "HOROVOD_ELASTIC_TIMEOUT").value(), 600);
  EXPECT_EQ(number_of(Environment(), "HOROVOD_MAX_REQUEUES", 20).value(), 20);
  EXPECT_EQ(number_of(Environment(), "HOROVOD_LOCAL_RANK", -1).value(), -1);
}

TEST(OneKnob, with_a_wrong_value_is_the_error_of_a_config) {
  for (auto [name, value] : {std::pair("HOROVOD_BIND", "maybe"), std::pair("HOROVOD_PEER_TIMEOUT", "0.5"),
                             std::pair("HOROVOD_MAX_REQUEUES", "3.5"), std::pair("HOROVOD_MAX_REQUEUES", "3000000000"),
                             std::pair("HOROVOD_TERMINATION_GRACE_SECONDS", "86401")}) {
    Environment environment;
    environment.set(name, value);
    const std::string fault = name == std::string("HOROVOD_BIND") ? is_on(environment, name).error().message
                                                                  : number_of(environment, name).error().message;
    EXPECT_EQ(fault, complaint_about(name, value));
  }
  EXPECT_NE(complaint_about("HOROVOD_TERMINATION_GRACE_SECONDS", "86401").find("not below 0 nor above 86400"),
            std::string::npos);
}

TEST(Config, takes_zero_where_horovod_means_the_default_by_it) {
  for (const char* name :
       {"HOROVOD_NUM_NCCL_STREAMS", "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES"})
    EXPECT_EQ(complaint_about(name, "0"), "") << name;
}

TEST(Config, table_has_each_knob_once_and_explains_it) {
  std::set<std::string> names;
  for (const KnobRow& knob : knobs()) {
    EXPECT_TRUE(names.insert(knob.name).second) << knob.name << " has two rows";
    EXPECT_TRUE(std::string(knob.name).starts_with("HOROVOD_"));
    EXPECT_NE(*knob.kind, '\0') << knob.name;
    EXPECT_NE(*knob.meaning, '\0') << knob.name;
  }
}

TEST(Config, of_placement_must_be_equal_on_all_ranks) {
  EXPECT_NE(Config().equal_knobs().find("HOROVOD_GPU_SHARING=if_needed\nHOROVOD_BIND=1\n"), std::string::npos);
}

TEST(MpiUse, is_told_with_the_setting_that_decides_it) {
  Config config;
  EXPECT_EQ(mpi_use(config).when, MpiUse::When::between_nodes);
  EXPECT_EQ(mpi_use(config).why, "");
  config.cpu_operations = "gloo";
  EXPECT_EQ(mpi_use(config).when, MpiUse::When::never);
  EXPECT_EQ(mpi_use(config).why, "HOROVOD_CPU_OPERATIONS=gloo");
  config.mpi = "mpich";
  EXPECT_EQ(mpi_use(config).when, MpiUse::When::always);
  config.mpi = "none";
  EXPECT_EQ(mpi_use(config).when, MpiUse::When::never);
  EXPECT_EQ(mpi_use(config).why, "HOROVOD_MPI=none");
}

}  // namespace
}  // namespace hvd
