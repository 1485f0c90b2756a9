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
  ASSERT_TRUE(remove_old(folder_, 2, [] { return Status(); }));
  EXPECT_TRUE(std::filesystem::exists(path("step-000000000005.h5")));
  EXPECT_TRUE(std::filesystem::exists(path("step-000000000004.h5")));
  EXPECT_FALSE(std::filesystem::exists(path("step-000000000003.h5")));
  EXPECT_FALSE(std::filesystem::exists(path("step-000000000001.h5")));
  EXPECT_TRUE(std::filesystem::exists(path("mine.h5")));
}

TEST_F(GenerationsOfAFolder, stay_where_a_user_gave_them_a_name) {
  for (const char* name : {"step-best.h5", "step-1a.h5", "step-.h5", "step-7.h5.copy.h5"}) save(name, 1);
  for (int step = 1; step <= 3; ++step) save(path_for_step("", step).substr(1), step);
  ASSERT_TRUE(remove_old(folder_, 1, [] { return Status(); }));
  for (const char* name : {"step-best.h5", "step-1a.h5", "step-.h5", "step-7.h5.copy.h5", "step-000000000003.h5"})
    EXPECT_TRUE(std::filesystem::exists(path(name))) << name;
  EXPECT_FALSE(std::filesystem::exists(path("step-000000000001.h5")));
}

TEST_F(GenerationsOfAFolder, stay_when_the_right_to_remove_them_is_lost) {
  for (int step = 1; step <= 3; ++step) save(path_for_step("", step).substr(1), step);
  int asked = 0;
  auto outcome = remove_old(folder_, 1, [&]() -> Status {
    if (++asked == 1) return {};
    return Error(ErrorCode::invalid_argument, "lost");
  });
  EXPECT_FALSE(outcome);
  EXPECT_TRUE(std::filesystem::exists(path("step-000000000001.h5")));
  EXPECT_FALSE(std::filesystem::exists(path("step-000000000002.h5")));
}

TEST_F(GenerationsOfAFolder, keep_their_places_from_a_writer_that_lost_the_right_meanwhile) {
  save("run.h5", 1);
  WriteOptions options;
  options.step = 2;
  options.may_replace = []() -> Status { return Error(ErrorCode::invalid_argument, "lost"); };
  auto outcome = write("run.h5", at_step(2), options);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().message, "lost");
  EXPECT_EQ(newest("run.h5"), 1);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(GenerationsOfAFolder, before_a_sequence_are_those_that_were_written_earlier) {
  save("step-000000000150.h5", 150);
  save("step-000000000120.h5", 120);
  save("step-000000000200.h5", 200);
  auto ignore = [](const std::string&) {};
  auto last = open_newest(*library_, folder_, true, ignore);
  ASSERT_TRUE(last);
  auto before = open_before(*library_, folder_, last->header().sequence, true, ignore);
  ASSERT_TRUE(before) << before.error().message;
  EXPECT_EQ(before->header().step, 120);
  damage("step-000000000150.h5");
  auto none = open_before(*library_, folder_, before->header().sequence, true, ignore);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::system);
}

TEST_F(GenerationsOfAFolder, are_none_in_a_folder_of_other_files) {
  write_bytes("data.h5", "\x89HDF\r\n\x1a\n and more");
  auto none = open_newest(*library_, folder_, true, [](const std::string&) {});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(none.error().message.find("has no checkpoint"), std::string::npos) << none.error().message;
}

TEST_F(GenerationsOfAFolder, of_a_step_are_damaged_where_nothing_of_a_checkpoint_is_in_them) {
  save("step-000000000001.h5", 1);
  write_bytes("step-000000000002.h5", std::string(2 * header_bytes, 'x'));
  std::filesystem::create_symlink("nowhere", path("step-000000000003.h5"));
  EXPECT_EQ(newest(), 1);
  EXPECT_NE(told_.find("step-000000000002.h5 is no checkpoint of Horovod"), std::string::npos) << told_;
  EXPECT_NE(told_.find("step-000000000003.h5 cannot be opened"), std::string::npos) << told_;
  std::filesystem::remove(path("step-000000000001.h5"));
  auto none = open_newest(*library_, folder_, true, [](const std::string&) {});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::system);  // a Checkpointer would begin anew if it were invalid_argument
  EXPECT_NE(none.error().message.find("has no whole checkpoint"), std::string::npos) << none.error().message;
}

TEST_F(GenerationsOfAFolder, of_a_newer_layout_are_named_where_they_are_passed_over) {
  save("step-000000000001.h5", 1);
  Header newer;
  newer.layout = newest_layout + 1;
  newer.file_bytes = newer.table_offset = header_bytes;
  write_bytes("step-000000000002.h5", encode(newer));
  EXPECT_EQ(newest(), 1);
  EXPECT_NE(told_.find("which a newer Horovod wrote"), std::string::npos) << told_;
}

TEST_F(GenerationsOfAFolder, of_a_linked_file_are_found_through_the_link) {
  save("run.h5", 1);
  std::filesystem::create_symlink("run.h5", path("link.h5"));
  save("link.h5", 2);
  EXPECT_TRUE(std::filesystem::is_symlink(path("link.h5")));
  damage("run.h5");
  EXPECT_EQ(newest("link.h5"), 1);
  std::filesystem::remove(path("run.h5"));
  save("link.h5", 3);  // the link leads nowhere now, and stays a link
  EXPECT_TRUE(std::filesystem::is_symlink(path("link.h5")));
  EXPECT_EQ(newest("run.h5"), 3);
}

TEST_F(GenerationsOfAFolder, with_zeros_at_the_beginning_are_damaged) {
  save("run.h5", 1);
  save("run.h5", 2);
  write_bytes("run.h5", std::string(header_bytes, '\0') + bytes_of_file("run.h5").substr(header_bytes));
  EXPECT_EQ(newest("run.h5"), 1);
  EXPECT_NE(told_.find("are zeros"), std::string::npos) << told_;
  EXPECT_EQ(newest(), 1);
  EXPECT_NE(told_.find("are zeros"), std::string::npos) << told_;
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
