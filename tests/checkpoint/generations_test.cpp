#include "checkpoint/generations.hpp"

#include "checkpoint_files.hpp"

namespace hvd::checkpoint {
namespace {

class GenerationsOfAFolder : public WithCheckpoints {
 protected:
  State at_step(std::int64_t step) { return {{"/", "dict", Group{}}, {"/step", "", step}}; }
  void save(const std::string& name, std::int64_t step) {
    WriteOptions options;
    options.step = step;
    options.sequence = next_sequence(path(name));
    auto outcome = write(name, at_step(step), options);
    ASSERT_TRUE(outcome) << outcome.error().message;
  }
  std::int64_t newest(const std::string& name = "") {
    told_.clear();
    auto reader = open_newest(*library_, folder_ + (name.empty() ? "" : "/" + name), true,
                              [&](const std::string& why) { told_ += why + "\n"; });
    if (!reader) {
      told_ += reader.error().message;
      return -1;
    }
    return reader->header().step;
  }
  void damage(const std::string& name) {
    std::string bytes = bytes_of_file(name);
    bytes[bytes.size() / 2] ^= 1;
    write_bytes(name, bytes);
  }
  std::string told_;
};

TEST_F(GenerationsOfAFolder, begin_with_the_one_that_was_written_last) {
  save("step-000000000010.h5", 10);
  save("step-000000000020.h5", 20);
  EXPECT_EQ(newest(), 20);
  save("step-000000000005.h5", 5);  // the training began again at a lower step
  EXPECT_EQ(newest(), 5);
  EXPECT_TRUE(told_.empty()) << told_;
}

TEST_F(GenerationsOfAFolder, are_passed_over_with_a_word_where_they_are_damaged) {
  for (int step : {1, 2, 3}) save(path_for_step("", step).substr(1), step);
  damage("step-000000000003.h5");
  EXPECT_EQ(newest(), 2);
  EXPECT_NE(told_.find("step-000000000003.h5 is damaged"), std::string::npos) << told_;
  write_bytes("step-000000000002.h5", "");
  EXPECT_EQ(newest(), 1);
  damage("step-000000000001.h5");
  EXPECT_EQ(newest(), -1);
  EXPECT_NE(told_.find("has no whole checkpoint"), std::string::npos) << told_;
}

TEST_F(GenerationsOfAFolder, of_one_path_are_two) {
  save("run.h5", 1);
  save("run.h5", 2);
  EXPECT_EQ(newest("run.h5"), 2);
  damage("run.h5");
  EXPECT_EQ(newest("run.h5"), 1);
  EXPECT_NE(told_.find("run.h5.previous instead"), std::string::npos) << told_;
  std::filesystem::remove(path("run.h5"));
  EXPECT_EQ(newest("run.h5"), 1);
  save("run.h5", 3);
  EXPECT_EQ(newest("run.h5"), 3);
}

TEST_F(GenerationsOfAFolder, go_when_there_are_enough_newer_ones) {
  for (int step = 1; step <= 5; ++step) save(path_for_step("", step).substr(1), step);
  save("mine.h5", 6);
  damage("step-000000000002.h5");
  ASSERT_TRUE(remove_old(folder_, 2));
  EXPECT_TRUE(std::filesystem::exists(path("step-000000000005.h5")));
  EXPECT_TRUE(std::filesystem::exists(path("step-000000000004.h5")));
  EXPECT_FALSE(std::filesystem::exists(path("step-000000000003.h5")));
  EXPECT_FALSE(std::filesystem::exists(path("step-000000000001.h5")));
  EXPECT_TRUE(std::filesystem::exists(path("mine.h5")));
}

TEST_F(GenerationsOfAFolder, are_not_looked_for_where_there_is_no_folder) {
  EXPECT_EQ(newest("nowhere/run.h5"), -1);
  EXPECT_NE(told_.find("cannot be opened on host"), std::string::npos) << told_;
  auto found = generations_in(folder_ + "/nowhere");
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message.find("/nowhere cannot be read"), std::string::npos) << found.error().message;
}

TEST_F(GenerationsOfAFolder, leave_what_was_there_where_a_write_is_refused) {
  save("run.h5", 1);
  const struct {
    std::string name;
    const char* word;
  } cases[] = {{"", "names a folder"},
               {"../" + folder_.substr(folder_.rfind('/') + 1), "is a folder"},
               {"no/such/run.h5", "is not there"},
               {"run.h5/run.h5", "looked at"}};
  for (const auto& row : cases) {
    auto outcome = write(row.name, at_step(2));
    ASSERT_FALSE(outcome) << row.name;
    EXPECT_NE(outcome.error().message.find(row.word), std::string::npos) << outcome.error().message;
  }
  EXPECT_FALSE(write_file(*library_, "/dev/null", at_step(2), {}));
  EXPECT_EQ(newest("run.h5"), 1);
  // Nothing else is left in the folder.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(GenerationsOfAFolder, do_not_keep_what_a_killed_writer_left) {
  write_bytes(".run.h5.writing-host-1", "half");
  save("run.h5", 1);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

}  // namespace
}  // namespace hvd::checkpoint
