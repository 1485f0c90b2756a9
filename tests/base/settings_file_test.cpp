#include "base/settings/settings_file.hpp"

#include <gtest/gtest.h>

#include <set>

#include "base/settings/config.hpp"
#include "missing_from.hpp"

namespace hvd {
namespace {

SettingsFile parsed(std::string_view text, bool is_of_site = true) {
  auto file = parse_settings_file(text, "site.yaml", is_of_site);
  EXPECT_TRUE(file) << file.error().message;
  return file ? *file : SettingsFile{};
}

std::string complaint_about(std::string_view text) {
  auto file = parse_settings_file(text, "site.yaml", true);
  return file ? "" : file.error().message;
}

SettingsFiles both(std::string_view site, std::string_view user) {
  auto of_user = parse_settings_file(user, "config.yaml", false);
  return {parsed(site), of_user ? std::optional(*of_user) : std::nullopt};
}

std::string refusal(const SettingsFiles& files, std::map<std::string, std::string, std::less<>> variables) {
  std::vector<std::string> notices;
  auto checked = files.check_locks(Environment(std::move(variables)), notices);
  if (!checked) return checked.error().text();
  return notices.empty() ? "" : "notice: " + notices[0];
}

TEST(SettingsFile, knows_settings_and_the_keys_of_horovod) {
  auto file = parsed(
      "contact: hpc@example.org\nsettings:\n  HOROVOD_GLOO_IFACE: ib0\nparams:\n  fusion_threshold_mb: 64\n"
      "stall_check:\n  enabled: no\nhorovodrun:\n  verbose: true\ncontroller: mpi\n");
  EXPECT_EQ(file.contact, "hpc@example.org");
  EXPECT_EQ(file.settings.at("HOROVOD_GLOO_IFACE").value, "ib0");
  EXPECT_EQ(file.settings.at("HOROVOD_GLOO_IFACE").line, 3);
  EXPECT_EQ(file.settings.at("HOROVOD_FUSION_THRESHOLD").value, "67108864");
  EXPECT_EQ(file.settings.at("HOROVOD_STALL_CHECK_DISABLE").value, "1");
  ASSERT_EQ(file.for_launcher.size(), 2u);
  EXPECT_EQ(file.for_launcher[0].key, "verbose");
  EXPECT_EQ(file.for_launcher[1].key, "controller");
  EXPECT_TRUE(file.notices.empty());
}

TEST(SettingsFile, every_key_of_horovod_stands_for_a_setting) {
  std::set<std::string> variables;
  for (const FileKey& row : file_keys()) {
    EXPECT_NE(knob_of(row.variable), nullptr) << row.key;
    EXPECT_TRUE(variables.insert(row.variable).second) << row.key;
    EXPECT_EQ(file_key(row.key), &row);
  }
}

TEST(SettingsFile, proposes_the_nearest_key_for_an_unknown_one) {
  auto file = parsed("settings:\n  HOROVOD_GLO_IFACE: ib0\nparms:\n  cycle_time_ms: 1\nlogging:\n  levl: info\n");
  ASSERT_EQ(file.notices.size(), 3u);
  EXPECT_EQ(file.notices[0],
            "site.yaml, line 2: the key HOROVOD_GLO_IFACE has no effect; did you mean HOROVOD_GLOO_IFACE?");
  EXPECT_NE(file.notices[1].find("did you mean params?"), std::string::npos) << file.notices[1];
  EXPECT_NE(file.notices[2].find("did you mean logging.level?"), std::string::npos) << file.notices[2];
}

TEST(SettingsFile, has_its_mistakes_told_with_line_expected_and_found) {
  EXPECT_NE(complaint_about("settings:\n  HOROVOD_START_TIMEOUT: soon\n")
                .find("site.yaml, line 2: HOROVOD_START_TIMEOUT=soon: expected a number (seconds)"),
            std::string::npos);
  EXPECT_NE(complaint_about("settings:\n  HOROVOD_START_TIMEOUT: soon\n").find("found 'soon'"), std::string::npos);
  EXPECT_NE(complaint_about("just words\n").find("site.yaml, line 1"), std::string::npos);
  EXPECT_NE(complaint_about("settings:\n  HOROVOD_RANK: 1\n").find("set by the launcher"), std::string::npos);
  EXPECT_NE(complaint_about("settings:\n  HOROVOD_SITE_CONFIG: /x\n").find("line 2"), std::string::npos);
  EXPECT_NE(complaint_about("locked: [a]\n").find("line 1"), std::string::npos);
  EXPECT_NE(complaint_about("locked:\n  HOROVOD_MPI: 1\n").find("'- ' and a value were expected"), std::string::npos);
  EXPECT_NE(complaint_about("locked:\n- HOROVOD_MPY\n").find("did you mean HOROVOD_MPI?"), std::string::npos);
}

TEST(SettingsFiles, lie_under_the_environment_the_users_over_the_sites) {
  auto files = both("settings:\n  HOROVOD_MPI: mpich\n  HOROVOD_GLOO_IFACE: ib0\n  HOROVOD_START_TIMEOUT: 60\n",
                    "settings:\n  HOROVOD_START_TIMEOUT: 90\n  HOROVOD_GLOO_IFACE: ib1\n");
  Environment given;
  given.set("HOROVOD_GLOO_IFACE", "eth0");
  given.set("HOROVOD_MPI", "");
  auto result = files.over(given);
  EXPECT_EQ(result.get("HOROVOD_GLOO_IFACE"), "eth0");
  EXPECT_EQ(result.get("HOROVOD_START_TIMEOUT"), "90");
  EXPECT_EQ(result.get("HOROVOD_MPI"), "mpich") << "an empty value is the same as none";
  auto settings = settings_of(given, files);
  auto origin = [&](const char* name) {
    for (const Setting& setting : settings)
      if (setting.name == name) return setting.origin();
    return std::string();
  };
  EXPECT_EQ(origin("HOROVOD_GLOO_IFACE"), "environment");
  EXPECT_EQ(origin("HOROVOD_START_TIMEOUT"), "config.yaml, line 2");
  EXPECT_EQ(origin("HOROVOD_MPI"), "site.yaml, line 2");
  EXPECT_EQ(origin("HOROVOD_PEER_TIMEOUT"), "default");
}

TEST(SettingsFiles, show_nothing_that_only_the_jobs_processes_may_know) {
  Environment given;
  given.set("HOROVOD_SECRET_KEY", "hush");
  for (const Setting& setting : settings_of(given, {})) EXPECT_EQ(setting.value.find("hush"), std::string::npos);
}

TEST(Locks, refuse_other_values_and_name_file_line_and_whom_to_ask) {
  auto files = both(
      "contact: hpc@example.org\nsettings:\n  HOROVOD_START_TIMEOUT: 60\nlocked:\n"
      "  - HOROVOD_START_TIMEOUT\n  - HOROVOD_CCL_CACHE\n  - HOROVOD_MPI\n",
      "");
  EXPECT_EQ(refusal(files, {{"HOROVOD_START_TIMEOUT", "60.0"}}), "");
  EXPECT_EQ(testing::missing_from(refusal(files, {{"HOROVOD_START_TIMEOUT", "61"}}),
                                  {"environment", "HOROVOD_START_TIMEOUT=61", "locked", "60", "site.yaml, line 5",
                                   "hpc@example.org", "[HVD1004]"}),
            "");
  EXPECT_NE(refusal(files, {{"HOROVOD_MPI", "mpich"}}).find("to be unset"), std::string::npos);
  EXPECT_EQ(refusal(files, {{"HOROVOD_CCL_CACHE", "1"}}).find("notice: "), 0u)
      << "what has no effect stops no script of Horovod";
}

TEST(Locks, are_the_sites_alone) {
  auto files = both("settings:\n  HOROVOD_MPI: mpich\nlocked:\n  - HOROVOD_MPI\n",
                    "locked:\n  - HOROVOD_START_TIMEOUT\nsettings:\n  HOROVOD_MPI: openmpi\n");
  EXPECT_NE(refusal(files, {}).find("config.yaml, line 4 sets HOROVOD_MPI=openmpi"), std::string::npos);
  ASSERT_EQ(files.user->notices.size(), 1u);
  EXPECT_NE(files.user->notices[0].find("only the file of the site may have it"), std::string::npos);
}

}  // namespace
}  // namespace hvd
