#include "base/log.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <regex.h>
#include <unistd.h>

#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace hvd::log {
namespace {

// True if the whole text matches `form`, an extended regular expression of POSIX. std::regex is not used, because GCC
// 12 warns about its own code under AddressSanitizer.
bool matches(const std::string& text, const std::string& form) {
  regex_t compiled;
  if (regcomp(&compiled, ("^(" + form + ")$").c_str(), REG_EXTENDED | REG_NOSUB) != 0) return false;
  bool found = regexec(&compiled, text.c_str(), 0, nullptr, 0) == 0;
  regfree(&compiled);
  return found;
}

struct Output {
  std::string out, err;
};

template <typename Action>
Output output_of(Action action) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  action();
  return {testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

// Every test restores the log to the state of a fresh process.
class Log : public ::testing::Test {
 protected:
  void TearDown() override {
    configure({});
    set_rank(-1);
  }
};

TEST_F(Log, writes_time_level_place_and_rank) {
  set_rank(3);
  auto output = output_of([] { warning("the text"); });
  const char* time = "[0-9]{4}(-[0-9]{2}){2} [0-9]{2}(:[0-9]{2}){2}\\.[0-9]{6}";
  EXPECT_TRUE(matches(output.err, "\\[" + std::string(time) + ": WARNING log_test\\.cpp:[0-9]+\\] \\[3\\]: the text\n"))
      << output.err;
  EXPECT_EQ(output.out, "");
}

TEST_F(Log, leaves_out_the_time_and_the_rank_that_nobody_knows) {
  configure({Level::warning, true});
  auto output = output_of([] { error("x"); });
  EXPECT_TRUE(matches(output.err, "\\[ERROR log_test\\.cpp:[0-9]+\\]: x\n")) << output.err;
}

TEST_F(Log, shows_info_and_below_on_stdout_and_the_rest_on_stderr) {
  configure({Level::trace, true});
  auto output = output_of([] {
    trace("a");
    debug("b");
    info("c");
    warning("d");
    error("e");
  });
  auto lines = [](const std::string& text) { return std::count(text.begin(), text.end(), '\n'); };
  EXPECT_EQ(lines(output.out), 3);
  EXPECT_EQ(lines(output.err), 2);
}

TEST_F(Log, keeps_silent_below_its_level) {
  auto by_default = output_of([] { info("a"); });
  EXPECT_EQ(by_default.out, "");
  configure({Level::fatal, true});
  auto at_fatal = output_of([] { error("a"); });
  EXPECT_EQ(at_fatal.err, "");
}

TEST_F(Log, does_not_mix_the_lines_of_threads) {
  configure({Level::info, true});
  constexpr int thread_count = 4, lines_each = 200;
  auto output = output_of([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < thread_count; ++t)
      threads.emplace_back([t] {
        for (int i = 0; i < lines_each; ++i) info(std::string(200, static_cast<char>('a' + t)));
      });
    for (auto& thread : threads) thread.join();
  });
  const char* form = "\\[INFO log_test\\.cpp:[0-9]+\\]: (a{200}|b{200}|c{200}|d{200})";
  int lines = 0;
  std::istringstream stream(output.out);
  for (std::string line; std::getline(stream, line); ++lines) ASSERT_TRUE(matches(line, form)) << line;
  EXPECT_EQ(lines, thread_count * lines_each);
}

TEST_F(Log, leaves_errno_as_the_caller_had_it) {
  errno = ENOENT;
  output_of([] { warning("x"); });
  int seen = errno;
  EXPECT_EQ(seen, ENOENT);
}

TEST_F(Log, drops_a_line_that_nobody_reads_instead_of_hanging) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  std::string filling(4096, 'x');
  while (::write(ends[1], filling.data(), filling.size()) > 0) {
  }
  int saved = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  write(Level::warning, "lost");
  dup2(saved, STDERR_FILENO);
  for (int descriptor : {saved, ends[0], ends[1]}) close(descriptor);
}

TEST(LogDeathTest, ends_the_process_after_a_fatal_message) {
  EXPECT_DEATH(write(Level::fatal, "beyond repair"), "FATAL log_test.cpp:[0-9]+\\]: beyond repair");
}

}  // namespace
}  // namespace hvd::log
