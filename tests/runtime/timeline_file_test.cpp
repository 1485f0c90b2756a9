// The file must be valid JSON at any instant: after every event, when its writer is killed, and when the disk is full.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "in_own_folder.hpp"
#include "json.hpp"
#include "runtime/observers/trace_file.hpp"
#include "sanitized.hpp"

namespace hvd::runtime {
namespace {

using testing::Json;
using testing::JsonReader;

class ATraceFile : public testing::InOwnFolder {
 protected:
  std::string path_ = folder_ + "/trace";
  TraceFile create() {
    auto file = TraceFile::create(path_);
    if (!file) panic(file.error().message);
    return std::move(*file);
  }
};

std::string event_of(int number, std::size_t bytes) {
  std::string head = "{\"number\":" + std::to_string(number) + ",\"more\":\"", tail = "\"}";
  return head + std::string(std::max(bytes, head.size() + tail.size()) - head.size() - tail.size(), 'x') + tail;
}

// Returns the number of events in the file. They must be the first events of all.
int events_in(const std::string& path) {
  auto trace = JsonReader::read_file(path);
  EXPECT_TRUE(trace && trace->kind == Json::Kind::array) << path << " is no JSON array";
  if (!trace) return -1;
  int number = 0;
  for (const Json& event : trace->items) EXPECT_EQ(static_cast<int>(event["number"].number), number++);
  return number;
}

TEST_F(ATraceFile, is_an_array_after_every_event) {
  TraceFile file = create();
  EXPECT_EQ(events_in(path_), 0);
  // few events, because the whole file is parsed again after each event
  const int events = testing::is_sanitized ? 60 : 300;
  std::mt19937 random(7);
  for (int number = 0; number < events; ++number) {
    std::size_t bytes = number % 10 == 0 ? TraceFile::longest_event : random() % 2000;
    file.add(event_of(number, bytes));
    ASSERT_TRUE(file.flush());
    ASSERT_EQ(events_in(path_), number + 1);
  }
  EXPECT_TRUE(file.close());
  EXPECT_EQ(events_in(path_), events);
}

TEST_F(ATraceFile, leaves_no_blank_space_when_it_is_closed) {
  for (int events : {0, 1, 700, 20'000}) {
    TraceFile file = create();
    for (int number = 0; number < events; ++number) file.add(event_of(number, 100));
    EXPECT_TRUE(file.close());
    EXPECT_EQ(events_in(path_), events);
    struct stat kind {};
    ASSERT_EQ(::stat(path_.c_str(), &kind), 0);
    EXPECT_LT(kind.st_size, 4 + events * 110);
  }
}

TEST_F(ATraceFile, empties_what_was_there_before) {
  write("trace", std::string(1'000'000, '{'));
  TraceFile file = create();
  EXPECT_EQ(events_in(path_), 0);
}

TEST_F(ATraceFile, is_refused_by_name_where_it_cannot_be) {
  ASSERT_EQ(::mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  for (const std::string& path : {folder_, folder_ + "/none/trace", folder_ + "/pipe", std::string("/dev/null")}) {
    auto file = TraceFile::create(path);
    ASSERT_FALSE(file);
    EXPECT_NE(file.error().message.find("'" + path + "'"), std::string::npos) << file.error().message;
  }
}

// Starts a child that writes until it is killed, and that reports its progress from time to time.
pid_t start_writer(const std::string& path, int to_parent) {
  pid_t child = ::fork();
  if (child != 0) return child;
  auto file = TraceFile::create(path);
  if (!file) ::_exit(1);
  std::mt19937 random(static_cast<unsigned>(::getpid()));
  for (int number = 0;; ++number) {
    file->add(event_of(number, random() % 300));
    if (random() % 50 == 0 && !file->flush()) ::_exit(2);
    char sign = 0;
    if (number % 64 == 0 && ::write(to_parent, &sign, 1) != 1) ::_exit(3);
  }
}

TEST_F(ATraceFile, is_an_array_when_its_writer_is_killed_at_a_random_moment) {
  std::mt19937 random(11);
  for (int round = 0; round < (testing::is_sanitized ? 12 : 50); ++round) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    pid_t child = start_writer(path_, ends[1]);
    ASSERT_GT(child, 0);
    char sign;
    // Most children are killed early, because a sanitizer takes seconds to read a long file.
    const unsigned long longest = (round % 10 == 0 ? 400UL : 30UL) / (testing::is_sanitized ? 2 : 1);
    for (unsigned long left = 1 + random() % longest; left > 0; --left) ASSERT_EQ(::read(ends[0], &sign, 1), 1);
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself with " << WEXITSTATUS(status);
    ::close(ends[0]);
    ::close(ends[1]);
    EXPECT_GE(events_in(path_), 0) << "in round " << round;
  }
}

TEST_F(ATraceFile, stays_an_array_when_the_disk_is_full) {
  pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{300'000, 300'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    auto file = TraceFile::create(path_);
    if (!file) ::_exit(1);
    for (int number = 0; number < 10'000; ++number) {
      file->add(event_of(number, 100));
      if (number % 10 != 0) continue;
      auto status = file->flush();
      if (!status) ::_exit(status.error().message.find("write to the timeline") == std::string::npos ? 2 : 0);
    }
    ::_exit(3);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_GT(events_in(path_), 1000);
}

}  // namespace
}  // namespace hvd::runtime
