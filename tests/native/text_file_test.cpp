#include "native/posix/files/text_file.hpp"

#include <gtest/gtest.h>

#include "in_own_folder.hpp"
#include "missing_from.hpp"

namespace hvd::posix {
namespace {

using testing::missing_from;
using TextFile = testing::InOwnFolder;

std::string text_or_error(const std::string& path) {
  auto text = read_text(path);
  return text ? *text : "error: " + text.error().message;
}

TEST_F(TextFile, is_read_as_a_whole_and_an_empty_file_is_no_error) {
  const std::string large(100'000, 'x');
  write("large", large);
  write("empty", "");
  EXPECT_EQ(text_or_error(folder_ + "/large"), large);
  EXPECT_EQ(text_or_error(folder_ + "/missing").substr(0, 6), "error:");  // leaves an errno behind
  EXPECT_EQ(text_or_error(folder_ + "/empty"), "");
}

TEST_F(TextFile, that_cannot_be_read_is_named_with_the_cause) {
  EXPECT_EQ(missing_from(text_or_error(folder_ + "/missing"), {folder_ + "/missing", "No such file or directory"}), "");
  EXPECT_EQ(missing_from(text_or_error(folder_), {folder_, "Is a directory"}), "");
}

}  // namespace
}  // namespace hvd::posix
