#include "launcher/console/console.hpp"

#include <algorithm>

namespace hvd::launcher {

void Console::say_time(const char* event) {
  if (!verbose_) return;
  auto span = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - started_at_).count();
  say(std::string(event) + " after " + std::to_string(span / 1000) + "." + std::to_string(span / 100 % 10) + " ms");
}

std::array<pollfd, 2> Console::wanted() {
  std::array<pollfd, 2> polled{};
  for (Stream stream : {Stream::standard_output, Stream::standard_error}) {
    Sink& sink = printer_.sink(stream);
    polled[static_cast<std::size_t>(stream)] = {sink.broken() ? -1 : sink.descriptor(),
                                                static_cast<short>(sink.pending() > 0 ? POLLOUT : 0), 0};
  }
  return polled;
}

void Console::look(const pollfd& output, const pollfd& errors) {
  if ((output.revents & (POLLERR | POLLNVAL)) != 0) printer_.sink(Stream::standard_output).abandon();
  if ((errors.revents & (POLLERR | POLLNVAL)) != 0) printer_.sink(Stream::standard_error).abandon();
}

bool Console::has_lost_reader() {
  return printer_.sink(Stream::standard_output).broken() || printer_.sink(Stream::standard_error).broken();
}

void Console::flush() {
  printer_.sink(Stream::standard_output).flush();
  printer_.sink(Stream::standard_error).flush();
  report_lost_output();
}

void Console::report_lost_output() {
  for (Stream stream : {Stream::standard_output, Stream::standard_error})
    if (int why = printer_.sink(stream).take_failure(); why != 0)
      say(std::string("the ranks' output is lost, because standard ") +
          (stream == Stream::standard_output ? "output" : "error") + " cannot be written (" + errno_text(why) +
          "); the job goes on");
}

void Console::flush_all(Deadline deadline) {
  while (!deadline.passed()) {
    flush();
    if (!has_unsent()) return;
    std::array<pollfd, 2> polled = wanted();
    ::poll(polled.data(), polled.size(), static_cast<int>(std::min<std::int64_t>(deadline.left().count(), 1000)));
  }
}

}  // namespace hvd::launcher
