#include "launcher/console/output.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "in_own_folder.hpp"

namespace hvd::launcher {
namespace {

std::vector<std::string> lines_of(LineCutter& cutter, std::initializer_list<std::string_view> pieces) {
  std::vector<std::string> lines;
  for (std::string_view piece : pieces)
    cutter.feed(piece, [&](LineCutter::Piece line) {
      if (line.is_rest) lines.back() += line.text;
      else lines.emplace_back(line.text);
    });
  return lines;
}

TEST(LineCutter, ends_lines_at_newlines_and_carriage_returns) {
  LineCutter cutter;
  EXPECT_EQ(lines_of(cutter, {"a\nb\rc\r\n\nrest"}), (std::vector<std::string>{"a\n", "b\r", "c\r\n", "\n"}));
  EXPECT_EQ(cutter.take_rest(), "rest");
  EXPECT_EQ(cutter.take_rest(), "");
}

TEST(LineCutter, gives_the_same_lines_however_the_stream_is_cut) {
  std::string text = "first\nsecond \xc3\xa4\nthird\r\n\n\r\r\nfourth\r";
  for (std::size_t at = 0; at <= text.size(); ++at) {
    LineCutter cutter;
    EXPECT_EQ(lines_of(cutter, {text.substr(0, at), text.substr(at)}),
              (std::vector<std::string>{"first\n", "second \xc3\xa4\n", "third\r\n", "\n", "\r", "\r\n", "fourth\r"}))
        << at;
  }
}

TEST(LineCutter, cuts_a_line_without_end_and_loses_nothing) {
  LineCutter cutter;
  std::string piece(1 << 20, 'x');
  std::size_t emitted = 0;
  for (int i = 0; i < 40; ++i) cutter.feed(piece, [&](LineCutter::Piece line) { emitted += line.text.size(); });
  EXPECT_GE(emitted, LineCutter::longest);
  EXPECT_EQ(emitted + cutter.take_rest().size(), 40 * piece.size());
}

std::size_t open_descriptors() {
  std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

class PrinterOfAnElasticJob : public testing::InOwnFolder {};

TEST_F(PrinterOfAnElasticJob, lets_all_processes_of_a_slot_write_to_the_same_files) {
  PrinterOptions options;
  options.folder = folder_;
  options.size = 0;
  Printer printer(options);
  ASSERT_TRUE(printer.admit(Rank{0}, "n1.0"));
  const std::size_t open = open_descriptors();
  for (int process = 1; process < 100; ++process) ASSERT_TRUE(printer.admit(Rank{process}, "n1.0"));
  EXPECT_EQ(open_descriptors(), open);
  ASSERT_TRUE(printer.admit(Rank{100}, "n1.1"));
  for (int process : {99, 0, 100}) printer.add({Rank{process}, Stream::standard_error, std::to_string(process) + "\n"});
  auto text_of = [&](const std::string& path) {
    std::ifstream file(folder_ + "/" + path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_EQ(text_of("n1.0/stderr"), "99\n0\n");
  EXPECT_EQ(text_of("n1.1/stderr"), "100\n");
}

TEST_F(PrinterOfAnElasticJob, does_not_keep_what_an_earlier_job_has_written) {
  PrinterOptions options;
  options.folder = folder_;
  options.size = 0;
  for (const char* text : {"earlier\n", "new\n"}) {
    Printer printer(options);
    ASSERT_TRUE(printer.admit(Rank{0}, "n1.0"));
    printer.add({Rank{0}, Stream::standard_error, text});
  }
  std::ifstream file(folder_ + "/n1.0/stderr");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "new\n");
}

TEST(Sink, keeps_what_a_full_pipe_does_not_take) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Sink sink(ends[1]);
  std::string text(1 << 20, 'y');
  sink.add(text);
  sink.flush();
  EXPECT_GT(sink.pending(), 0u);
  EXPECT_FALSE(sink.broken());
  // The pipe stays blocking for its other users.
  EXPECT_EQ(::fcntl(ends[1], F_GETFL) & O_NONBLOCK, 0);
  std::size_t received = 0;
  std::vector<char> chunk(100000);
  while (received < text.size()) {
    ssize_t count = ::read(ends[0], chunk.data(), chunk.size());
    ASSERT_GT(count, 0);
    received += static_cast<std::size_t>(count);
    sink.flush();
  }
  EXPECT_EQ(received, text.size());
  EXPECT_EQ(sink.pending(), 0u);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Sink, notices_that_its_reader_is_gone) {
  auto before = ::signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Sink sink(ends[1]);
  ::close(ends[0]);
  sink.add("text");
  sink.flush();
  EXPECT_TRUE(sink.broken());
  EXPECT_EQ(sink.pending(), 0u);
  ::close(ends[1]);
  ::signal(SIGPIPE, before);
}

TEST(Sink, says_once_why_nothing_more_fits_and_goes_on) {
  posix::FileDescriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  Sink sink(full.get());
  EXPECT_EQ(sink.take_failure(), 0);
  for (int expected : {ENOSPC, 0}) {
    sink.add("text");
    sink.flush();
    EXPECT_EQ(sink.pending(), 0u);
    EXPECT_FALSE(sink.broken());
    EXPECT_EQ(sink.take_failure(), expected);
  }
}

TEST(Sink, that_was_closed_from_the_start_swallows_everything) {
  Sink sink(987);
  sink.add("text");
  sink.flush();
  EXPECT_FALSE(sink.broken());
  EXPECT_EQ(sink.pending(), 0u);
}

}  // namespace
}  // namespace hvd::launcher
