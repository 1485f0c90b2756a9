#pragma once
// Messages for people. Levels up to info go to stdout, higher levels to stderr, as Horovod's users expect. The level,
// the style and the rank label of the log are the only state that several runtimes of a process share.
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
// Every later line begins with [rank]. With -1 it has no such label.
void set_rank(int rank);
bool enabled(Level level) noexcept;

// Writes one line with one write(2): [date time: LEVEL file:line] [rank]: text. Any thread may call it. The caller
// first checks that the level is enabled. At Level::fatal the process is then aborted.
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
