#include "launcher/agent/packed_output.hpp"

#include <fcntl.h>
#include <limits.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "launcher/wire/keeper_protocol.hpp"

namespace hvd::launcher {
namespace {

// While this many bytes wait to be taken, the rank has to wait, too.
constexpr std::size_t most_waiting = 256 << 10;

}  // namespace

Result<PackedOutput> PackedOutput::open(int to, std::string label) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe for a rank's output", errno);
  posix::FileDescriptor from(ends[0]), rank_end(ends[1]);
  ::fcntl(from.get(), F_SETFL, O_NONBLOCK);
  return PackedOutput(std::move(from), std::move(rank_end), to, std::move(label));
}

PackedOutput::PackedOutput(posix::FileDescriptor from, posix::FileDescriptor rank_end, int to, std::string label)
    : from_(std::move(from)), rank_end_(std::move(rank_end)), sink_(to), label_(std::move(label)) {}

void PackedOutput::add_to(std::vector<pollfd>& polled) const {
  if (from_ && waiting_ < most_waiting) polled.push_back({from_.get(), POLLIN, 0});
  if (!is_written()) polled.push_back({sink_.descriptor(), POLLOUT, 0});
}

void PackedOutput::relay() {
  write();
  if (waiting_ < most_waiting && read() > 0) write();
}

void PackedOutput::send(std::string_view packet) {
  add(packet);
  write();
}

void PackedOutput::finish(std::string_view own_packet) {
  // Reads only what is there now: other processes may hold the pipe and write forever.
  int there = 0;
  if (from_) ::ioctl(from_.get(), FIONREAD, &there);
  while (there > 0) {
    ssize_t count = read();
    if (count <= 0) break;
    there -= static_cast<int>(count);
  }
  if (!own_packet.empty()) add(own_packet);
  write();
}

ssize_t PackedOutput::read() {
  std::array<char, 16 << 10> bytes;
  if (!from_) return 0;
  ssize_t count = 0;
  do count = ::read(from_.get(), bytes.data(), bytes.size());
  while (count < 0 && errno == EINTR);
  if (count > 0)
    pack({bytes.data(), static_cast<std::size_t>(count)}, [this](std::string_view packet) { add(packet); });
  else if (count == 0) from_.reset();
  return count;
}

void PackedOutput::add(std::string_view packet) {
  if (sink_.broken()) return;
  std::size_t size = label_.size() + packet.size();
  if (units_.empty() || units_.back().size() + size > PIPE_BUF) units_.emplace_back();
  (units_.back() += label_) += packet;
  waiting_ += size;
}

void PackedOutput::write() {
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
