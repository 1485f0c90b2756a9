#pragma once
// A rank's output on its way into an mpiexec, which puts a label before whatever it happens to read in one go, and which
// may be the middle of a line (Python writes the words of a print one by one). So it gets whole lines, each in a write
// that pipes do not split. What is no whole line gets an end with a mark, which horovodrun takes out with the end.
#include <poll.h>
#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "launcher/output.hpp"
#include "native/posix/file_descriptor.hpp"

namespace hvd::launcher {

inline constexpr std::string_view goes_on_mark = "[horovodrun: this line goes on]\n";

class WholeLines {
 public:
  // `to` is borrowed.
  static Result<WholeLines> open(int to);

  // What the rank writes to. Close it here once the rank has it.
  posix::FileDescriptor& rank_end() { return rank_end_; }
  int source() const { return from_.get(); }
  int target() const { return sink_.descriptor(); }
  void add_to(std::vector<pollfd>& polled) const;
  // Moves on what can be moved without waiting.
  void relay();
  // The rank has ended, so all that it wrote is here; then comes a line of the keeper's.
  void finish(std::string_view own_line = {});
  // True if nothing waits to be written, or nobody reads.
  bool is_written() const { return sink_.broken() || (units_.empty() && sink_.pending() == 0); }

 private:
  WholeLines(posix::FileDescriptor from, posix::FileDescriptor rank_end, int to);
  ssize_t read();
  void add(std::string_view text);
  void write();

  posix::FileDescriptor from_, rank_end_;
  Sink sink_;
  LineCutter cutter_;
  std::deque<std::string> units_;  // whole lines, as many as a pipe takes at once
  std::size_t waiting_ = 0;        // bytes of them
};

}  // namespace hvd::launcher
