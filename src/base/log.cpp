#include "base/log.hpp"

#include <poll.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "base/source_file.hpp"

namespace hvd::log {

namespace {

std::atomic<Level> lowest_level{Level::warning};
std::atomic<bool> time_hidden{false};
std::atomic<int> rank_label{-1};

std::string_view text_of(Level level) {
  constexpr std::string_view names[] = {"TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"};
  return names[static_cast<std::size_t>(level)];
}

// Returns text such as "2026-01-31 23:59:59.000001: ".
std::string time_prefix() {
  timeval now{};
  gettimeofday(&now, nullptr);
  std::tm parts{};
  localtime_r(&now.tv_sec, &parts);
  char seconds[32];
  std::size_t length = std::strftime(seconds, sizeof seconds, "%Y-%m-%d %H:%M:%S", &parts);
  char fraction[16];
  std::snprintf(fraction, sizeof fraction, ".%06ld: ", static_cast<long>(now.tv_usec));
  return std::string(seconds, length) + fraction;
}

// Writes a line with one write(), so that lines of several threads and processes do not mix. The loop continues after
// an interrupting signal, or if somebody made the output non-blocking. If the reader takes nothing for a second, the
// line is dropped, because a message must not stop the program.
void write_whole(int descriptor, std::string_view line) {
  constexpr int patience_ms = 1000;
  while (!line.empty()) {
    ssize_t written = ::write(descriptor, line.data(), line.size());
    if (written >= 0) {
      line.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      pollfd ready{descriptor, POLLOUT, 0};
      if (::poll(&ready, 1, patience_ms) == 0) return;
    } else if (errno != EINTR) {
      return;
    }
  }
}

}  // namespace

void configure(Style style) {
  lowest_level.store(style.level, std::memory_order_relaxed);
  time_hidden.store(style.hide_time, std::memory_order_relaxed);
}

void set_rank(int rank) {
  rank_label.store(rank, std::memory_order_relaxed);
}

bool enabled(Level level) noexcept {
  return level >= lowest_level.load(std::memory_order_relaxed);
}

void write(Level level, std::string_view text, std::source_location where) {
  int caller_errno = errno;
  std::string line = "[";
  if (!time_hidden.load(std::memory_order_relaxed)) line += time_prefix();
  line += text_of(level);
  line += ' ';
  line += source_file_of(where);
  line += ':' + std::to_string(where.line()) + ']';
  if (int rank = rank_label.load(std::memory_order_relaxed); rank >= 0) line += " [" + std::to_string(rank) + ']';
  line += ": ";
  line += text;
  line += '\n';
  write_whole(level <= Level::info ? STDOUT_FILENO : STDERR_FILENO, line);
  errno = caller_errno;
  if (level == Level::fatal) std::abort();
}

}  // namespace hvd::log
