#pragma once
// Messages to people. At info and below they go to stdout, above to stderr, as Horovod's users expect.
// The only state of ours that a process shares between runtimes: level, style and rank label of the log.
#include <source_location>
#include <string_view>

namespace hvd::log {

enum class Level : int { trace, debug, info, warning, error, fatal };

struct Style {
  Level level = Level::warning;
  bool hide_time = false;
  friend bool operator==(const Style&, const Style&) = default;
};

void configure(Style style);
// Shown as [rank] in every line from now on; -1 for none.
void set_rank(int rank);
bool enabled(Level level) noexcept;

// One line, in one write(2): [date time: LEVEL file:line] [rank]: text. From any thread. The caller asks whether the
// level is enabled. At Level::fatal the process is then aborted.
void write(Level level, std::string_view text, std::source_location where = std::source_location::current());

inline void trace(std::string_view text, std::source_location w = std::source_location::current()) {
  if (enabled(Level::trace)) write(Level::trace, text, w);
}
inline void debug(std::string_view text, std::source_location w = std::source_location::current()) {
  if (enabled(Level::debug)) write(Level::debug, text, w);
}
inline void info(std::string_view text, std::source_location w = std::source_location::current()) {
  if (enabled(Level::info)) write(Level::info, text, w);
}
inline void warning(std::string_view text, std::source_location w = std::source_location::current()) {
  if (enabled(Level::warning)) write(Level::warning, text, w);
}
inline void error(std::string_view text, std::source_location w = std::source_location::current()) {
  if (enabled(Level::error)) write(Level::error, text, w);
}

}  // namespace hvd::log
