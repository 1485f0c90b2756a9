#pragma once
// What the user of a job sees: the ranks' output and horovodrun's own lines. The reader may be slow, or may go away.
#include <poll.h>

#include <array>
#include <string>

#include "base/deadline.hpp"
#include "launcher/console/output.hpp"

namespace hvd::launcher {

class Console {
 public:
  Console(const PrinterOptions& options, bool verbose) : printer_(options), verbose_(verbose) {}

  Printer& printer() noexcept { return printer_; }
  void say(const std::string& text) { printer_.say("horovodrun: " + text); }
  void say_if_verbose(const std::string& text) {
    if (verbose_) say(text);
  }
  // With --verbose: prints the event, and the time that has passed since the start.
  void say_time(const char* event);

  // Returns what to poll(), even if nothing is to be written: if the reader has gone (| head), the job ends even if the
  // ranks are silent. Give the result to look().
  std::array<pollfd, 2> wanted();
  void look(const pollfd& output, const pollfd& errors);
  bool has_lost_reader();

  bool has_unsent() const { return printer_.pending() > 0; }
  bool has_room() const { return printer_.pending() <= output_window_bytes; }  // the ranks may print more
  void flush();                                                                // writes what is taken without waiting
  void flush_all(Deadline deadline);

 private:
  void report_lost_output();

  Printer printer_;
  bool verbose_;
  Clock::time_point started_at_ = Clock::now();
};

}  // namespace hvd::launcher
