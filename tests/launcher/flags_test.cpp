#include "launcher/options/flags.hpp"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "base/settings/config.hpp"
#include "base/settings/environment.hpp"
#include "jobscripts/site.hpp"

namespace hvd::launcher {
namespace {

Result<Flags> parse(std::vector<const char*> arguments) {
  return parse_flags(arguments);
}

std::map<std::string, std::string> variables(std::vector<const char*> arguments) {
  auto flags = parse(std::move(arguments));
  EXPECT_TRUE(flags) << flags.error().message;
  return variables_of(*flags);
}

std::string error_of(std::vector<const char*> arguments) {
  auto flags = parse(std::move(arguments));
  return flags ? "" : flags.error().message;
}

using Variables = std::map<std::string, std::string>;

TEST(Flags, offer_a_job_script_for_each_scheduler_that_has_a_template) {
  std::string names;
  for (const auto& each : jobscripts::compiled_templates())
    names += (names.empty() ? "" : " ") + std::string(each.name);
  for (const FlagRow& row : flag_rows())
    if (row.name == std::string_view("jobscript")) {
      EXPECT_EQ(row.values, names);
    }
  EXPECT_NE(error_of({"--site", "summit"}).find("needs --jobscript with one of lsf, "), std::string::npos);
}

TEST(Flags, end_where_the_command_begins) {
  auto flags = parse({"-np", "2", "--verbose", "python", "-v", "--fusion-threshold-mb", "3"});
  ASSERT_TRUE(flags);
  EXPECT_EQ(flags->number("num_proc", 0), 2);
  EXPECT_EQ(flags->command, (std::vector<std::string>{"python", "-v", "--fusion-threshold-mb", "3"}));
  EXPECT_TRUE(flags->has("verbose"));
  EXPECT_FALSE(flags->has("fusion_threshold_mb"));
  auto after_dashes = parse({"-np", "2", "--", "-odd-name"});
  ASSERT_TRUE(after_dashes);
  EXPECT_EQ(after_dashes->command, std::vector<std::string>{"-odd-name"});
}

TEST(Flags, take_their_value_with_a_blank_an_equals_sign_or_glued) {
  for (auto arguments :
       {std::vector<const char*>{"-H", "a:2"}, {"-H=a:2"}, {"-Ha:2"}, {"--hosts", "a:2"}, {"--hosts=a:2"}})
    EXPECT_EQ(parse(arguments)->get("hosts"), "a:2");
  EXPECT_EQ(parse({"-p2222"})->number("ssh_port", 0), 2222);
}

TEST(Flags, may_be_shortened_while_they_are_unique) {
  EXPECT_EQ(variables({"--fusion", "1"}), (Variables{{"HOROVOD_FUSION_THRESHOLD", "1048576"}}));
  EXPECT_NE(error_of({"--log", "x"}).find("ambiguous"), std::string::npos);
}

TEST(Flags, write_their_variables_as_horovod_does) {
  EXPECT_EQ(variables({"--fusion-threshold-mb", "10", "--cycle-time-ms", "20", "--cache-capacity", "512"}),
            (Variables{{"HOROVOD_FUSION_THRESHOLD", "10485760"},
                       {"HOROVOD_CYCLE_TIME", "20.0"},
                       {"HOROVOD_CACHE_CAPACITY", "512"}}));
  EXPECT_EQ(variables({"--cycle-time-ms", "0.25"})["HOROVOD_CYCLE_TIME"], "0.25");
  EXPECT_EQ(variables({"--hierarchical-allreduce", "--no-torus-allreduce"}),
            (Variables{{"HOROVOD_HIERARCHICAL_ALLREDUCE", "1"}, {"HOROVOD_TORUS_ALLREDUCE", "0"}}));
  EXPECT_EQ(
      variables({"--stall-check", "--log-without-timestamp", "--tcp"}),
      (Variables{{"HOROVOD_STALL_CHECK_DISABLE", "0"}, {"HOROVOD_LOG_HIDE_TIME", "1"}, {"NCCL_IB_DISABLE", "1"}}));
  EXPECT_EQ(variables({"--network-interface", "eth0", "--network-interfaces", "ib0,ib1"}),
            (Variables{{"NCCL_SOCKET_IFNAME", "eth0,ib0,ib1"}, {"HOROVOD_GLOO_IFACE", "eth0"}}));
  EXPECT_EQ(variables({"-np", "4", "--verbose"}), Variables{});
}

TEST(Flags, that_belong_to_another_one_are_written_only_with_it) {
  EXPECT_EQ(variables({"--autotune-log-file", "log"}), Variables{});
  EXPECT_EQ(variables({"--no-autotune", "--autotune-log-file", "log"}), Variables{});
  EXPECT_EQ(variables({"--autotune", "--autotune-log-file", "log"}),
            (Variables{{"HOROVOD_AUTOTUNE", "1"}, {"HOROVOD_AUTOTUNE_LOG", "log"}}));
  EXPECT_EQ(variables({"--timeline-mark-cycles"}), Variables{});
  EXPECT_EQ(variables({"--timeline-filename", "t", "--timeline-mark-cycles"}),
            (Variables{{"HOROVOD_TIMELINE", "t"}, {"HOROVOD_TIMELINE_MARK_CYCLES", "1"}}));
}

TEST(Flags, that_make_no_sense_are_refused_with_what_was_expected) {
  EXPECT_NE(error_of({"-np", "0"}).find("at least 1, not '0'"), std::string::npos);
  EXPECT_NE(error_of({"-np", "2x"}).find("whole number"), std::string::npos);
  EXPECT_NE(error_of({"-np", "99999999999"}).find("whole number"), std::string::npos);
  EXPECT_NE(error_of({"--cycle-time-ms", "-1"}).find("at least 0"), std::string::npos);
  EXPECT_NE(error_of({"--cycle-time-ms", "nan"}).find("a number"), std::string::npos);
  EXPECT_NE(error_of({"--autotune-gaussian-process-noise", "1.5"}).find("from 0 to 1"), std::string::npos);
  EXPECT_NE(error_of({"--log-level", "debug"}).find("TRACE"), std::string::npos);
  EXPECT_NE(error_of({"--blacklist-cooldown-range", "1"}).find("two values"), std::string::npos);
  EXPECT_NE(error_of({"--verbose=1"}).find("takes no value"), std::string::npos);
  EXPECT_NE(error_of({"-np"}).find("needs a value"), std::string::npos);
  EXPECT_NE(error_of({"--gloo", "--mpi"}).find("exclude each other"), std::string::npos);
  EXPECT_NE(error_of({"-H", "a:1", "--hostfile", "f"}).find("exclude each other"), std::string::npos);
  EXPECT_NE(error_of({"--cache-capcity", "1"}).find("did you mean --cache-capacity"), std::string::npos);
  EXPECT_NE(error_of({"--cache-capc", "1"}).find("did you mean --cache-capacity"), std::string::npos);
}

TEST(Flags, of_every_row_may_not_be_negative_where_horovod_forbids_it) {
  int checked = 0;
  for (const FlagRow& row : flag_rows()) {
    if (row.range == Range::any || row.kind == Kind::pair) continue;
    EXPECT_FALSE(check_value(row, "it", "-1")) << row.name;
    EXPECT_TRUE(check_value(row, "it", "1")) << row.name;
    ++checked;
  }
  EXPECT_GT(checked, 15);
}

// A rank refuses a value that its table of variables does not allow. horovodrun refuses such a value earlier.
TEST(Flags, that_are_accepted_are_accepted_by_the_ranks) {
  EXPECT_EQ(variables({"--num-nccl-streams", "0"})["HOROVOD_NUM_NCCL_STREAMS"], "0");
  EXPECT_NE(
      error_of({"--fusion-threshold-mb", "2000000000"}).find("HOROVOD_FUSION_THRESHOLD=2097152000000000: expected"),
      std::string::npos);
  for (const FlagRow& row : flag_rows())
    for (const char* value : {"0", "1", "0.5", "1000", "2147483647", "1e300", "INFO", "0,1", "a"}) {
      auto checked = check_value(row, "it", value);
      if (row.variable == nullptr || !checked) continue;
      Flags flags;
      flags.set(row.name, *checked);
      if (row.needs != nullptr) flags.set(row.needs, "1");
      std::vector<std::string> warnings;
      Environment environment;
      for (const auto& [name, written] : variables_of(flags)) environment.set(name, written);
      auto config = Config::from(environment, warnings);
      EXPECT_TRUE(config) << row.name << ": " << config.error().message;
    }
}

TEST(Flags, that_do_nothing_say_so_as_their_variables_do) {
  auto has_effect = [](std::string_view text) { return !text.starts_with("no effect"); };
  int without = 0;
  for (const FlagRow& row : flag_rows())
    for (const KnobRow& knob : knobs()) {
      if (row.variable == nullptr || std::string_view(row.variable) != knob.name) continue;
      EXPECT_EQ(has_effect(row.help), has_effect(knob.meaning)) << row.help << "; " << knob.meaning;
      without += has_effect(row.help) ? 0 : 1;
    }
  EXPECT_GT(without, 5);
}

TEST(Flags, that_contradict_each_other_are_refused) {
  EXPECT_NE(error_of({"--autotune", "--no-autotune"}).find("--no-autotune contradicts"), std::string::npos);
  EXPECT_EQ(error_of({"--autotune", "--autotune", "--verbose", "--verbose"}), "");
  EXPECT_NE(error_of({"--log-with-timestamp", "--log-without-timestamp"}).find("contradicts"), std::string::npos);
}

struct Contradiction {
  std::vector<const char*> arguments;
  const char* message;
};
TEST(Flags, of_elastic_jobs_that_contradict_each_other_are_refused) {
  for (const Contradiction& each : std::initializer_list<Contradiction>{
           {{"-np", "2", "--min-np", "3"}, "--min-np 3 is more than -np 2: the job begins with -np ranks"},
           {{"-np", "4", "--min-np", "2", "--max-np", "3"}, "--max-np 3 is less than -np 4"},
           {{"--min-np", "2", "--max-np", "1"}, "--max-np 1 is less than --min-np 2"},
           {{"-np", "2", "--max-np", "3"},
            "the flag --max-np is for elastic jobs: it needs --min-np, or "
            "--host-discovery-script"},
           {{"--reset-limit", "3"},
            "the flag --reset-limit is for elastic jobs: it needs --min-np, or "
            "--host-discovery-script"},
           {{"--min-np", "2", "-H", "a:2", "--host-discovery-script", "find"},
            "-H, --hostfile and --host-discovery-script exclude each other: give one of them"},
           {{"--min-np", "2", "--slots-per-host", "2"},
            "--slots-per-host is for hosts that --host-discovery-script finds: give -H with slots, as in -H a:2,b:2"},
           {{"--min-np", "2", "--blacklist-cooldown-range", "20", "10"},
            "--blacklist-cooldown-range takes two numbers of seconds from 1 to 3600, the smaller one first, but got 20 "
            "10"},
           {{"--min-np", "2", "--blacklist-cooldown-range", "0", "10"},
            "--blacklist-cooldown-range takes two numbers of seconds from 1 to 3600, the smaller one first, but got 0 "
            "10"},
           {{"--min-np", "2", "--blacklist-cooldown-range", "1", "3601"},
            "--blacklist-cooldown-range takes two numbers of seconds from 1 to 3600, the smaller one first, but got 1 "
            "3601"},
           {{"--min-np", "2", "--spares", "some"}, "--spares takes a number from 0 on, or auto, but got some"},
           {{"--min-np", "2", "--spares", "-1"}, "--spares takes a number from 0 on, or auto, but got -1"},
           {{"--min-np", "2", "--max-np", "3", "--spares", "auto"}, ""},
           {{"-np", "3", "--min-np", "2", "--max-np", "4", "--reset-limit", "1", "--elastic-timeout", "5",
             "--blacklist-cooldown-range", "1", "3600"},
            ""},
           {{"--host-discovery-script", "find", "--slots-per-host", "2", "--max-np", "2"}, ""},
       })
    EXPECT_EQ(error_of(each.arguments), each.message);
}

TEST(Flags, of_the_help_come_with_the_variables_that_have_an_effect) {
  EXPECT_NE(help_text().find("\n  HOROVOD_PEER_TIMEOUT=10\n"), std::string::npos);
  EXPECT_EQ(help_text().find("HOROVOD_WITHOUT_MPI"), std::string::npos);
  EXPECT_EQ(help_text().find("\n  HOROVOD_RANK="), std::string::npos);
}

TEST(Flags, have_each_spelling_once) {
  std::set<std::string> seen;
  for (const FlagRow& row : flag_rows()) {
    std::istringstream words(std::string(row.spellings) + " " + row.negations);
    for (std::string word; words >> word;) EXPECT_TRUE(seen.insert(word).second) << word;
    EXPECT_EQ(row.kind == Kind::tristate, row.negations[0] != '\0') << row.name;
    EXPECT_NE(help_text().find(row.help), std::string::npos);
  }
}

TEST(Flags, that_are_deprecated_still_work_and_say_so) {
  EXPECT_NE(parse({"--network-interface", "eth0"})->notices.at(0).find("--network-interfaces"), std::string::npos);
  auto flags = parse({"--log-hide-timestamp"});
  ASSERT_TRUE(flags);
  EXPECT_EQ(variables_of(*flags)["HOROVOD_LOG_HIDE_TIME"], "1");
  ASSERT_EQ(flags->notices.size(), 1u);
  EXPECT_NE(flags->notices[0].find("deprecated"), std::string::npos);
}

Result<Flags> with_file(std::vector<const char*> arguments, const char* text) {
  auto flags = parse(std::move(arguments));
  if (!flags) return flags;
  HVD_RETURN_IF_ERROR(apply_config_file(*flags, text, "file.yaml"));
  return flags;
}

TEST(ConfigFile, fills_in_what_the_command_line_left_open) {
  const char* text =
      "# settings\n---\nparams:\n  fusion_threshold_mb: 32   # MiB\n  cycle_time_ms: 10\n  hierarchical_allreduce: "
      "true\n"
      "autotune:\n    enabled: yes\n    log_file: \"/tmp/a # b\"\n\nstall_check:\n  enabled: no\n  "
      "warning_time_seconds: 120\n"
      "logging:\n  level: debug\n  hide_timestamp: true\nlibrary_options:\n  num_nccl_streams: 2\nother:\n  - list\n  "
      "deep:\n    "
      "deeper: 1\n";
  auto flags = with_file({"--cycle-time-ms", "5"}, text);
  ASSERT_TRUE(flags) << flags.error().message;
  EXPECT_EQ(variables_of(*flags), (Variables{{"HOROVOD_FUSION_THRESHOLD", "33554432"},
                                             {"HOROVOD_CYCLE_TIME", "5.0"},
                                             {"HOROVOD_HIERARCHICAL_ALLREDUCE", "1"},
                                             {"HOROVOD_AUTOTUNE", "1"},
                                             {"HOROVOD_AUTOTUNE_LOG", "/tmp/a # b"},
                                             {"HOROVOD_STALL_CHECK_DISABLE", "1"},
                                             {"HOROVOD_STALL_CHECK_TIME_SECONDS", "120"},
                                             {"HOROVOD_LOG_LEVEL", "DEBUG"},
                                             {"HOROVOD_NUM_NCCL_STREAMS", "2"}}));
}

TEST(ConfigFile, chooses_the_launcher_unless_a_flag_does) {
  EXPECT_TRUE(with_file({}, "controller: GLOO\n")->is_set("use_gloo"));
  EXPECT_TRUE(with_file({}, "controller: mpi\n")->is_set("use_mpi"));
  EXPECT_FALSE(with_file({"--gloo"}, "controller: mpi\n")->is_set("use_mpi"));
  EXPECT_FALSE(with_file({}, "controller: other\n"));
}

TEST(ConfigFile, checks_stalls_when_it_has_the_section) {
  EXPECT_EQ(variables_of(*with_file({}, "stall_check:\n  warning_time_seconds: 1\n"))["HOROVOD_STALL_CHECK_DISABLE"],
            "0");
}

TEST(ConfigFile, has_quotes_where_a_value_begins) {
  auto log_file = [](const char* value) {
    std::string text = "autotune:\n  enabled: true\n  log_file: " + std::string(value) + "\n";
    auto flags = with_file({}, text.c_str());
    return flags ? flags->get("autotune_log_file") : "refused: " + flags.error().message;
  };
  EXPECT_EQ(log_file("it's.log # ours"), "it's.log");
  EXPECT_EQ(log_file("a\"b.log # 'ours'"), "a\"b.log");
  EXPECT_EQ(log_file("'it''s # here' # ours"), "it's # here");
  EXPECT_EQ(log_file("\"a \\\"b\\\" # c\" # ours"), "a \"b\" # c");
  EXPECT_NE(log_file("'a' b").find("behind the closing quote"), std::string::npos);
  EXPECT_NE(log_file("'a").find("no closing quote"), std::string::npos);
}

TEST(ConfigFile, has_values_on_the_next_line) {
  auto flags = with_file(
      {},
      "controller:\n  gloo\nparams:\n  fusion_threshold_mb:\n    # MiB\n    32 # or more\n  cache_capacity: 7\n"
      "autotune:\n  enabled: true\n  log_file:\n    'a b'\n");
  ASSERT_TRUE(flags) << flags.error().message;
  EXPECT_TRUE(flags->is_set("use_gloo"));
  EXPECT_EQ(flags->get("fusion_threshold_mb"), "32");
  EXPECT_EQ(flags->get("cache_capacity"), "7");
  EXPECT_EQ(flags->get("autotune_log_file"), "a b");
}

TEST(ConfigFile, says_which_keys_mean_nothing) {
  auto flags = with_file({},
                         "params:\n  fusion_treshold_mb: 32\n  xyz: 1\nstal_check:\n  enabled: true\n"
                         "verbos: true\nother:\n  - a\n  b:\n    c: 1\nlogging:\n  level: INFO\n");
  ASSERT_TRUE(flags) << flags.error().message;
  EXPECT_EQ(flags->notices,
            (std::vector<std::string>{"file.yaml, line 2: the key params.fusion_treshold_mb has no effect; did you "
                                      "mean params.fusion_threshold_mb?",
                                      "file.yaml, line 3: the key params.xyz has no effect",
                                      "file.yaml, line 4: the key stal_check has no effect; did you mean stall_check?",
                                      "file.yaml, line 6: the key verbos has no effect",
                                      "file.yaml, line 7: the key other has no effect"}));
}

TEST(ConfigFile, has_its_mistakes_told_with_the_line) {
  auto message = [](const char* text) {
    auto flags = with_file({}, text);
    return flags ? std::string() : flags.error().message;
  };
  EXPECT_NE(
      message("verbose: true\nparams: {cycle_time_ms: 5}\n").find("file.yaml, line 2: the line has its values in"),
      std::string::npos);
  EXPECT_NE(message("\xef\xbb\xbfparams:\r\n  cycle_time_ms: fast\r\n").find("file.yaml, line 2: params.cycle_time_ms"),
            std::string::npos);
  EXPECT_NE(message("params:\n  cycle_time_ms: fast\n").find("file.yaml, line 2: params.cycle_time_ms"),
            std::string::npos);
  EXPECT_NE(message("params:\n  cycle_time_ms: -1\n").find("at least 0"), std::string::npos);
  EXPECT_NE(message("params:\n\tcycle_time_ms: 1\n").find("line 2: the line indents with a tab"), std::string::npos);
  for (const char* value : {"\n    a: 1", "\n    - 1", " |\n    1", " [1]", " {a: 1}", " &x 1", " *x", " !!int 1"})
    EXPECT_NE(message(("params:\n  cache_capacity:" + std::string(value) + "\n").c_str())
                  .find("params.cache_capacity must be"),
              std::string::npos)
        << value << message(("params:\n  cache_capacity:" + std::string(value) + "\n").c_str());
  EXPECT_NE(message("autotune:\n  log_file: |\n    a\n").find("autotune.log_file"), std::string::npos);
  EXPECT_NE(message("params:\n  - cache_capacity: 1\n").find("line 2"), std::string::npos);
  EXPECT_NE(message("just words\n").find("line 1"), std::string::npos);
  EXPECT_NE(message("params:\n  cycle_time_ms: 1\n cache_capacity: 2\n").find("line 3"), std::string::npos);
  EXPECT_NE(message("  cycle_time_ms: 1\n").find("no section"), std::string::npos);
}

}  // namespace
}  // namespace hvd::launcher
