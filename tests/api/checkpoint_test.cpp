#include <memory>

#include "horovod.hpp"
#include "in_own_folder.hpp"

namespace horovod {
namespace {

class CheckpointInC : public hvd::testing::InOwnFolder {
 protected:
  void SetUp() override {
    if (hvd_checkpoint_library(nullptr) != HVD_OK) GTEST_SKIP() << hvd_last_error();
  }
  void TearDown() override { hvd_checkpoint_release(path("a.h5").c_str()); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  State state() const {
    State made;
    made.add("/model/weights", weights_, {2, 3}, "m/s");
    made.add("/model/deeper/counts", counts_);
    made.add("/loss", 0.5);
    made.add("/epoch", 7);
    made.add("/is_done", true);
    made.add("/name", "größer");
    return made;
  }
  const std::vector<float> weights_ = {1, 2, 3, 4, 5, 6};
  const std::vector<std::int64_t> counts_ = {-1, 1ll << 40};
};

TEST_F(CheckpointInC, comes_back_in_one_process_and_in_a_job_of_one) {
  for (bool in_a_job : {false, true}) {
    std::unique_ptr<Runtime> job = in_a_job ? std::make_unique<Runtime>() : nullptr;
    save(job.get(), path("a.h5"), state(), 12, in_a_job ? "gzip" : "");
    Checkpoint found(job.get(), folder_);
    EXPECT_EQ(found.step(), 12);
    EXPECT_EQ(found.path(), path("a.h5"));
    std::vector<float> weights(6);
    std::vector<std::int64_t> counts(2);
    found.read("/model/weights", std::span(weights));
    found.read("/model/deeper/counts", std::span(counts));
    EXPECT_EQ(weights, weights_);
    EXPECT_EQ(counts, counts_);
    std::string seen;
    for (const hvd_checkpoint_entry& entry : found.entries()) {
      seen += std::string(entry.path) + " ";
      std::string path = entry.path;
      EXPECT_TRUE(path != "/loss" || entry.number == 0.5);
      EXPECT_TRUE(path != "/epoch" || entry.integer == 7);
      EXPECT_TRUE(path != "/name" || std::string(entry.text) == "größer");
      EXPECT_TRUE(path != "/model/weights" ||
                  (entry.bytes == 24 && entry.shape[1] == 3 && entry.unit == std::string("m/s")));
    }
    EXPECT_EQ(seen, "/ /epoch /is_done /loss /model /model/deeper /model/deeper/counts /model/weights /name ");
  }
}

TEST_F(CheckpointInC, opens_what_was_saved_before) {
  save(nullptr, path("a.h5"), state(), 1);
  save(nullptr, path("a.h5"), state(), 2);
  hvd_checkpoint_info info{};
  info.struct_size = sizeof info;
  hvd_checkpoint* last = nullptr;
  ASSERT_EQ(hvd_checkpoint_open(nullptr, folder_.c_str(), &last), HVD_OK) << hvd_last_error();
  ASSERT_EQ(hvd_checkpoint_get_info(last, &info), HVD_OK);
  EXPECT_EQ(info.step, 2);
  hvd_checkpoint* before = nullptr;
  ASSERT_EQ(hvd_checkpoint_open_before(nullptr, folder_.c_str(), info.sequence, &before), HVD_OK) << hvd_last_error();
  ASSERT_EQ(hvd_checkpoint_get_info(before, &info), HVD_OK);
  EXPECT_EQ(info.step, 1);
  hvd_checkpoint* none = nullptr;
  EXPECT_EQ(hvd_checkpoint_open_before(nullptr, folder_.c_str(), info.sequence, &none), HVD_INVALID_ARGUMENT);
  hvd_checkpoint_close(before);
  hvd_checkpoint_close(last);
}

TEST_F(CheckpointInC, claims_a_path_before_it_is_written) {
  EXPECT_EQ(hvd_checkpoint_claim(path("a.h5").c_str()), HVD_OK) << hvd_last_error();
  EXPECT_TRUE(std::filesystem::exists(path(".a.h5.lease")));
  EXPECT_EQ(hvd_checkpoint_claim(path("a.h5").c_str()), HVD_OK) << hvd_last_error();
  std::ofstream(path(".a.h5.lease")) << "of another job\n";
  EXPECT_EQ(hvd_checkpoint_claim(path("a.h5").c_str()), HVD_INVALID_ARGUMENT);
  EXPECT_EQ(hvd_checkpoint_claim(nullptr), HVD_INVALID_ARGUMENT);
  hvd_checkpoint_options options{};
  options.struct_size = sizeof options;
  EXPECT_EQ(hvd_checkpoint_save(nullptr, path("a.h5").c_str(), nullptr, 0, &options), HVD_INVALID_ARGUMENT);
  EXPECT_FALSE(std::filesystem::exists(path("a.h5")));
}

TEST_F(CheckpointInC, names_the_job_of_every_scheduler_in_the_lease) {
  using Variables = std::vector<std::pair<const char*, const char*>>;
  const std::pair<Variables, std::string> jobs[] = {
      {{{"SLURM_JOB_ID", "17"}}, "17"},
      {{{"LSB_JOBID", "5"}, {"LSB_JOBINDEX", "2"}}, "5[2]"},
      {{{"PBS_JOBID", "9.server"}}, "9.server"},
      {{{"JOB_ID", "3"}, {"SGE_TASK_ID", "undefined"}}, "3"},
      {{{"FLUX_JOB_ID", "f3ETxsR9H"}}, "f3ETxsR9H"},
  };
  for (const auto& [variables, name] : jobs) {
    // NOLINTBEGIN(concurrency-mt-unsafe): no other thread reads the environment
    for (const auto& [variable, value] : variables) ::setenv(variable, value, 1);
    EXPECT_EQ(hvd_checkpoint_claim(path("a.h5").c_str()), HVD_OK) << hvd_last_error();
    for (const auto& [variable, value] : variables) ::unsetenv(variable);
    // NOLINTEND(concurrency-mt-unsafe)
    std::ifstream lease(path(".a.h5.lease"));
    const std::string text{std::istreambuf_iterator<char>(lease), {}};
    EXPECT_NE(text.find("\njob " + name + "\n"), std::string::npos) << name << " is missing in:\n" << text;
    hvd_checkpoint_release(path("a.h5").c_str());
  }
}

TEST_F(CheckpointInC, says_what_is_wrong_with_the_path_rather_than_with_its_lease) {
  EXPECT_NE(hvd_checkpoint_save(nullptr, path("no/such/a.h5").c_str(), nullptr, 0, nullptr), HVD_OK);
  EXPECT_NE(std::string(hvd_last_error()).find("is not there on host"), std::string::npos) << hvd_last_error();
}

TEST_F(CheckpointInC, refuses_what_does_not_fit_by_name) {
  save(nullptr, path("a.h5"), state());
  Checkpoint found(nullptr, path("a.h5"));
  std::vector<float> few(5);
  auto message_of = [&](auto&& call) {
    try {
      call();
    } catch (const Failure& failure) {
      return std::string(failure.what());
    }
    return std::string("nothing was refused");
  };
  EXPECT_NE(message_of([&] { found.read("/model/weights", std::span(few)); }).find("has 24 bytes"), std::string::npos);
  EXPECT_NE(message_of([&] { found.read("/loss", std::span(few)); }).find("no tensor /loss"), std::string::npos);
  EXPECT_NE(message_of([&] { Checkpoint(nullptr, path("none.h5")); }).find("cannot be opened"), std::string::npos);
  EXPECT_NE(message_of([&] { save(nullptr, folder_, state()); }).find("is a folder"), std::string::npos);
  EXPECT_NE(message_of([&] { save(nullptr, path("a.h5"), state(), 1, "zip"); }).find("zip"), std::string::npos);
  EXPECT_THROW(State().add("/x", weights_, {4}), std::invalid_argument);
}

TEST_F(CheckpointInC, copies_tensors_that_may_change_while_the_copy_is_saved) {
  std::vector<float> large(3 << 20);  // several pieces
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<float>(i);
  std::vector<std::uint8_t> odd = {1, 2, 3};
  State given;
  given.add("/odd", odd);
  given.add("/large", large);
  given.add("/epoch", 7);
  std::vector<hvd_checkpoint_entry> entries = given.entries();
  std::size_t bytes = 0;
  ASSERT_EQ(hvd_checkpoint_copy(entries.data(), entries.size(), nullptr, &bytes), HVD_OK) << hvd_last_error();
  EXPECT_EQ(bytes, 64 + large.size() * sizeof(float));
  std::vector<std::byte> memory(bytes);
  std::size_t too_few = bytes - 1;
  EXPECT_EQ(hvd_checkpoint_copy(entries.data(), entries.size(), memory.data(), &too_few), HVD_INVALID_ARGUMENT);
  EXPECT_NE(std::string(hvd_last_error()).find("need " + std::to_string(bytes)), std::string::npos);
  ASSERT_EQ(hvd_checkpoint_copy(entries.data(), entries.size(), memory.data(), &bytes), HVD_OK) << hvd_last_error();
  const std::vector<float> before = large;
  std::fill(large.begin(), large.end(), -1.0f);
  ASSERT_EQ(hvd_checkpoint_save(nullptr, path("a.h5").c_str(), entries.data(), entries.size(), nullptr), HVD_OK)
      << hvd_last_error();
  Checkpoint found(nullptr, path("a.h5"));
  std::vector<float> read(large.size());
  found.read("/large", std::span(read));
  EXPECT_EQ(read, before);
}

TEST_F(CheckpointInC, takes_structs_of_other_releases) {
  struct Newer {
    hvd_checkpoint_entry entry;
    std::uint64_t unknown;
  };
  std::vector<Newer> entries(2);
  for (Newer& newer : entries) newer.entry.struct_size = sizeof(Newer);
  entries[0].entry.path = "/one";
  entries[0].entry.type = HVD_ENTRY_INTEGER;
  entries[1].entry.path = "/two";
  entries[1].entry.type = HVD_ENTRY_NONE;
  EXPECT_EQ(hvd_checkpoint_save(nullptr, path("a.h5").c_str(), &entries[0].entry, 2, nullptr), HVD_OK)
      << hvd_last_error();
  EXPECT_EQ(Checkpoint(nullptr, path("a.h5")).entries().size(), 3u);
  entries[1].unknown = 1;
  EXPECT_EQ(hvd_checkpoint_save(nullptr, path("a.h5").c_str(), &entries[0].entry, 2, nullptr), HVD_UNSUPPORTED);
  entries[0].entry.struct_size = 8;
  EXPECT_EQ(hvd_checkpoint_save(nullptr, path("a.h5").c_str(), &entries[0].entry, 2, nullptr), HVD_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace horovod
