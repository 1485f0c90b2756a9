#include "bootstrap/selection/selection.hpp"

#include <gtest/gtest.h>

#include "store_thread.hpp"

namespace hvd::bootstrap {
namespace {

Result<Chosen> chosen_for(std::map<std::string, std::string, std::less<>> variables, std::string forced = "") {
  Config config;
  config.bootstrap = std::move(forced);
  std::vector<Notice> notices;
  return choose(Environment(std::move(variables)), config, notices);
}

void expect_refused(const Result<Chosen>& chosen, std::initializer_list<const char*> parts) {
  ASSERT_FALSE(chosen);
  for (const char* part : parts)
    EXPECT_NE(chosen.error().message.find(part), std::string::npos)
        << "\"" << part << "\" in: " << chosen.error().message;
}

TEST(Selection, knows_the_bootstraps_of_the_folder) {
  std::vector<std::string> names;
  for (const Maker& maker : registry()) {
    names.emplace_back(maker.name);
    EXPECT_STREQ(maker.make()->name(), maker.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"assigned", "environment", "mpi", "pmi", "pmix", "rendezvous", "single",
                                             "slurm"}));
}

TEST(Selection, runs_alone_where_nobody_left_a_trace) {
  auto chosen = chosen_for({{"PATH", "/bin"}});
  ASSERT_TRUE(chosen) << chosen.error().message;
  EXPECT_STREQ(chosen->bootstrap->name(), "single");
  EXPECT_EQ(chosen->identity.size, 1);
  EXPECT_EQ(chosen->why, "detected");
  ASSERT_TRUE(chosen->bootstrap->put("key", as_bytes("value")));
  ASSERT_TRUE(chosen->bootstrap->fence(soon()));
  EXPECT_EQ(to_string(*chosen->bootstrap->get(Rank{0}, "key", soon())), "value");
  EXPECT_FALSE(chosen->bootstrap->get(Rank{0}, "other", soon()));
  EXPECT_FALSE(chosen->bootstrap->get(Rank{1}, "key", soon()));
}

TEST(Selection, does_not_run_alone_what_another_launcher_started_as_several) {
  struct Row {
    const char* size;
    const char* rank;
  };
  for (const Row& row : {Row{"PMI_SIZE", "PMI_RANK"}, Row{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                         Row{"JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"}}) {
    expect_refused(chosen_for({{row.size, "4"}, {row.rank, "1"}}), {row.size, "HOROVOD_ALLOW_SINGLETON=1"});
    EXPECT_TRUE(chosen_for({{row.size, "4"}, {row.rank, "1"}}, "single")) << row.size;
    EXPECT_TRUE(chosen_for({{row.size, "1"}, {row.rank, "0"}})) << row.size;
  }
  EXPECT_TRUE(chosen_for({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}})) << "a batch script is no rank";
}

TEST(Selection, takes_a_single_rank_from_the_environment_without_a_store) {
  auto chosen = chosen_for({{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "1"}});
  ASSERT_TRUE(chosen) << chosen.error().message;
  EXPECT_STREQ(chosen->bootstrap->name(), "environment");
  EXPECT_EQ(chosen->identity.size, 1);
  EXPECT_FALSE(chosen->identity.job.empty());
  ASSERT_TRUE(chosen->bootstrap->put("key", as_bytes("value")));
  ASSERT_TRUE(chosen->bootstrap->fence(soon()));
  EXPECT_EQ(to_string(*chosen->bootstrap->get(Rank{0}, "key", soon())), "value");
}

TEST(Selection, refuses_an_environment_that_does_not_make_sense) {
  expect_refused(chosen_for({{"HOROVOD_RANK", "0"}}), {"HOROVOD_SIZE is not set", "HOROVOD_RANK is", "horovodrun"});
  expect_refused(chosen_for({{"HOROVOD_SIZE", "2"}}), {"HOROVOD_RANK is not set", "HOROVOD_SIZE is"});
  expect_refused(chosen_for({{"HOROVOD_RANK", "2"}, {"HOROVOD_SIZE", "2"}}),
                 {"HOROVOD_RANK=\"2\"", "0 to 1", "HOROVOD_SIZE=2"});
  for (const char* number : {"", "x", "1x", " 1", "-1", "1.5", "99999999999999999999"}) {
    expect_refused(chosen_for({{"HOROVOD_RANK", number}, {"HOROVOD_SIZE", "2"}}),
                   {"HOROVOD_RANK=\"", number, "expected a number"});
    expect_refused(chosen_for({{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", number}}),
                   {"HOROVOD_SIZE=\"", number, "expected a number"});
  }
  expect_refused(chosen_for({{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "0"}}), {"HOROVOD_SIZE=\"0\"", "from 1"});
  expect_refused(chosen_for({{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "2"}}),
                 {local_store::address_variable, "horovodrun"});
  expect_refused(chosen_for({{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "2"}, {local_store::address_variable, "@1"}}),
                 {local_store::secret_variable});
  expect_refused(chosen_for({}, "environment"), {"HOROVOD_BOOTSTRAP=environment", "HOROVOD_RANK is not set"});
}

TEST(Selection, joins_the_store_that_the_environment_names) {
  StoreThread store(2);
  on_threads(2, [&](int rank) {
    auto chosen = chosen_for({{"HOROVOD_RANK", std::to_string(rank)},
                              {"HOROVOD_SIZE", "2"},
                              {local_store::address_variable, store.address()},
                              {local_store::secret_variable, store.secret()}});
    ASSERT_TRUE(chosen) << chosen.error().message;
    EXPECT_EQ(chosen->identity.rank, Rank{rank});
    EXPECT_EQ(chosen->identity.job, "job-of-the-test");
    ASSERT_TRUE(chosen->bootstrap->put("card", as_bytes(std::to_string(rank))));
    ASSERT_TRUE(chosen->bootstrap->fence(soon()));
    EXPECT_EQ(to_string(*chosen->bootstrap->get(Rank{1 - rank}, "card", soon())), std::to_string(1 - rank));
    if (rank == 1) chosen->bootstrap->abort("enough");
    (void)chosen->bootstrap->put("last", {});
  });
  EXPECT_EQ(store.aborts(), std::vector<std::string>{"1: enough"});
}

TEST(Selection, names_the_known_ones_when_forced_to_use_another) {
  expect_refused(chosen_for({}, "pimx"), {"HOROVOD_BOOTSTRAP=\"pimx\"", "environment", "pmix", "single"});
}

TEST(Selection, never_runs_alone_because_a_server_is_gone) {
  // The variables show that this process is one of several. If PMIx cannot be used, this process must fail and not
  // train alone.
  expect_refused(chosen_for({{"PMIX_NAMESPACE", "over"}, {"PMIX_RANK", "0"}}), {"pmix", "HOROVOD_BOOTSTRAP=single"});
  EXPECT_TRUE(chosen_for({{"PMIX_NAMESPACE", "over"}, {"PMIX_RANK", "0"}}, "single"));
}

// Bootstraps whose behaviour the test determines.
template <int kind>
class Scripted final : public Bootstrap {
 public:
  const char* name() const override { return kind == 0 ? "pmix" : kind == 1 ? "environment" : "single"; }
  bool detected(const Environment& environment) const override { return kind == 2 || environment.has(name()); }
  Result<Identity> join(const Environment& environment, const Config&) override {
    std::string behaviour = environment.get(name()).value_or("");
    if (behaviour == "missing") return Error(ErrorCode::unsupported, std::string("no library for ") + name());
    if (behaviour == "broken") return Error(ErrorCode::system, std::string(name()) + " is broken");
    return Identity{Rank{1}, kind == 2 ? 1 : 4, "made-up"};
  }
  Status put(std::string_view, ConstBytes) override { return {}; }
  Result<Buffer> get(Rank, std::string_view, Deadline) override { return Buffer(); }
  Status fence(Deadline) override { return {}; }
  void abort(std::string_view) noexcept override {}
};

template <int kind>
std::unique_ptr<Bootstrap> make_made_up() {
  return std::make_unique<Scripted<kind>>();
}

constexpr Maker made_up[] = {
    {"environment", &make_made_up<1>}, {"single", &make_made_up<2>}, {"pmix", &make_made_up<0>}};

TEST(Selection, follows_the_order_of_preference) {
  struct Row {
    const char* pmix;
    const char* environment;
    const char* chosen;  // the bootstrap that must be chosen; null: none
    std::size_t notices;
  };
  for (const Row& row :
       {Row{"ok", "ok", "pmix", 0}, Row{nullptr, "ok", "environment", 0}, Row{"missing", "ok", "environment", 1},
        Row{nullptr, nullptr, "single", 0}, Row{"missing", nullptr, nullptr, 0}, Row{"missing", "missing", nullptr, 0},
        Row{"broken", "ok", nullptr, 0}, Row{"missing", "broken", nullptr, 0}}) {
    Environment environment;
    if (row.pmix != nullptr) environment.set("pmix", row.pmix);
    if (row.environment != nullptr) environment.set("environment", row.environment);
    std::vector<Notice> notices;
    auto chosen = choose(made_up, environment, Config(), notices);
    std::string label = std::string(row.pmix ? row.pmix : "-") + " " + (row.environment ? row.environment : "-");
    ASSERT_EQ(static_cast<bool>(chosen), row.chosen != nullptr) << label;
    if (chosen) {
      EXPECT_STREQ(chosen->bootstrap->name(), row.chosen) << label;
    }
    EXPECT_EQ(notices.size(), row.notices) << label;
    for (const Notice& notice : notices) EXPECT_NE(notice.find("no library for pmix"), std::string::npos) << notice;
  }
}

TEST(Selection, says_no_when_two_launchers_contradict_each_other) {
  Environment environment({{"pmix", "ok"}, {"HOROVOD_RANK", "1"}, {"HOROVOD_SIZE", "4"}});
  std::vector<Notice> notices;
  EXPECT_TRUE(choose(made_up, environment, Config(), notices));
  environment.set("HOROVOD_SIZE", "8");
  auto chosen = choose(made_up, environment, Config(), notices);
  expect_refused(chosen, {"rank 1 of 4", "HOROVOD_SIZE=8", "HOROVOD_BOOTSTRAP"});
  Config forced;
  forced.bootstrap = "pmix";
  EXPECT_TRUE(choose(made_up, environment, forced, notices));
}

TEST(Selection, takes_no_rank_of_a_task_for_those_that_torchrun_starts_in_it) {
  Environment environment({{"pmix", "ok"}, {"TORCHELASTIC_RUN_ID", "none"}, {"RANK", "1"}, {"WORLD_SIZE", "4"}});
  std::vector<Notice> notices;
  EXPECT_TRUE(choose(made_up, environment, Config(), notices));
  environment.set("WORLD_SIZE", "8");
  auto chosen = choose(made_up, environment, Config(), notices);
  expect_refused(chosen, {"rank 1 of 4", "torchrun", "rank 1 of 8", "horovodrun -np 8"});
}

}  // namespace
}  // namespace hvd::bootstrap
