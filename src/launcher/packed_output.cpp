#include "launcher/whole_lines.hpp"

#include <fcntl.h>
#include <limits.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace hvd::launcher {
namespace {

constexpr std::size_t unit_bytes = PIPE_BUF;
// The rank waits while so much is not taken.
constexpr std::size_t most_waiting = 256 << 10;

}  // namespace

Result<WholeLines> WholeLines::open(int to) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe for a rank's output", errno);
  posix::FileDescriptor from(ends[0]), rank_end(ends[1]);
  ::fcntl(from.get(), F_SETFL, O_NONBLOCK);
  return WholeLines(std::move(from), std::move(rank_end), to);
}

WholeLines::WholeLines(posix::FileDescriptor from, posix::FileDescriptor rank_end, int to)
    : from_(std::move(from)), rank_end_(std::move(rank_end)), sink_(to) {}

void WholeLines::add_to(std::vector<pollfd>& polled) const {
  if (from_ && waiting_ < most_waiting) polled.push_back({from_.get(), POLLIN, 0});
  if (!is_written()) polled.push_back({sink_.descriptor(), POLLOUT, 0});
}

void WholeLines::relay() {
  write();
  if (waiting_ < most_waiting && read() > 0) write();
}

void WholeLines::finish(std::string_view own_line) {
  // No more than that: others may have the pipe, too, and write for ever.
  int there = 0;
  if (from_) ::ioctl(from_.get(), FIONREAD, &there);
  while (there > 0) {
    ssize_t count = read();
    if (count <= 0) break;
    there -= static_cast<int>(count);
  }
  add(cutter_.take_rest());
  add(own_line);
  write();
}

ssize_t WholeLines::read() {
  std::array<char, 16 << 10> bytes;
  if (!from_) return 0;
  ssize_t count = 0;
  do count = ::read(from_.get(), bytes.data(), bytes.size());
  while (count < 0 && errno == EINTR);
  if (count > 0) {
    cutter_.feed({bytes.data(), static_cast<std::size_t>(count)}, [this](std::string_view line) { add(line); });
  } else if (count == 0) {
    add(cutter_.take_rest());
    from_.reset();
  }
  return count;
}

void WholeLines::add(std::string_view text) {
  while (!text.empty() && !sink_.broken()) {
    std::string_view piece = text.substr(0, unit_bytes - goes_on_mark.size());
    text.remove_prefix(piece.size());
    bool goes_on = piece.back() != '\n';
    std::size_t bytes = piece.size() + (goes_on ? goes_on_mark.size() : 0);
    if (units_.empty() || units_.back().size() + bytes > unit_bytes) units_.emplace_back();
    units_.back() += piece;
    if (goes_on) units_.back() += goes_on_mark;
    waiting_ += bytes;
  }
}

void WholeLines::write() {
  sink_.flush();
  while (!units_.empty() && sink_.pending() == 0 && !sink_.broken()) {
    sink_.add(units_.front());
    waiting_ -= units_.front().size();
    units_.pop_front();
    sink_.flush();
  }
  if (sink_.broken()) {
    units_.clear();
    waiting_ = 0;
  }
}

}  // namespace hvd::launcher
