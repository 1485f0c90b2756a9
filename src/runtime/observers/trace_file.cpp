#include "runtime/observers/trace_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/panic.hpp"

namespace hvd::runtime {

namespace {

constexpr std::uint64_t least_space = 64 << 10, most_space = 4 << 20;

// One byte of a file, mapped into memory, so that an assignment changes the file immediately.
class MappedByte {
 public:
  // `value` is the byte that the file has there. is_there() is false if the file system cannot map the file or the
  // place does not exist.
  MappedByte(int file, std::uint64_t place, char value) {
    auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    auto begin = static_cast<off_t>(place / page * page);
    void* memory = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, file, begin);
    if (memory == MAP_FAILED) return;
    memory_ = memory;
    bytes_ = page;
    byte_ = static_cast<char*>(memory) + place % page;
    if (!make_writable(value)) byte_ = nullptr;
  }
  ~MappedByte() {
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
  }
  MappedByte(const MappedByte&) = delete;
  MappedByte& operator=(const MappedByte&) = delete;

  bool is_there() const { return byte_ != nullptr; }
  volatile char& operator*() { return *byte_; }

 private:
  // Writes the byte by a system call. If the disk is full the call fails; a plain store would raise SIGBUS.
  bool make_writable(char value) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return false;
    posix::FileDescriptor from(ends[0]), to(ends[1]);
    return ::write(to.get(), &value, 1) == 1 && ::read(from.get(), byte_, 1) == 1;
  }

  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  char* byte_ = nullptr;
};

}  // namespace

Error TraceFile::cannot(const char* what, int errno_value) const {
  return system_error(std::string("cannot ") + what + " the timeline '" + path_ + "'", errno_value);
}

Result<TraceFile> TraceFile::create(const std::string& path) {
  // Without O_NONBLOCK, opening a named pipe would wait for a reader.
  posix::FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666));
  int refused = errno;
  TraceFile trace(path, std::move(file));
  if (!trace.file_) return trace.cannot("create", refused);
  struct stat kind {};
  if (::fstat(trace.file_.get(), &kind) != 0) return trace.cannot("look at", errno);
  if (!S_ISREG(kind.st_mode))
    return Error(ErrorCode::invalid_argument,
                 "cannot write the timeline to '" + path + "': it is not an ordinary file; name a file");
  if (::ftruncate(trace.file_.get(), 0) != 0) return trace.cannot("empty", errno);
  std::string blank(least_space, ' ');
  blank.front() = '[';
  blank.back() = ']';
  HVD_RETURN_IF_ERROR(trace.write(blank, 0));
  trace.written_ = 1;
  trace.size_ = blank.size();
  trace.bracket_ = trace.size_ - 1;
  return trace;
}

void TraceFile::add(std::string_view event) {
  if (event.size() > longest_event) panic("an event of the timeline is longer than a page");
  std::size_t begin = static_cast<std::size_t>(written_) + buffer_.size();
  std::size_t left = page_bytes - begin % page_bytes;
  if (left < event.size() + 2) buffer_.append(left, ' ');
  buffer_ += is_empty_ ? "\n" : ",\n";
  buffer_ += event;
  is_empty_ = false;
}

Status TraceFile::flush() {
  if (buffer_.empty()) return {};
  std::string taken;
  taken.swap(buffer_);
  HVD_RETURN_IF_ERROR(make_room(written_ + taken.size()));
  if (auto status = write(taken, written_); !status) {
    // The last event in the file may be cut off, so it is overwritten with blanks. If that fails too, nothing can be
    // done.
    std::fill(taken.begin(), taken.end(), ' ');
    (void)write(taken, written_);
    return status;
  }
  written_ += taken.size();
  taken.clear();
  buffer_.swap(taken);  // the swap keeps the capacity of both buffers
  return {};
}

Status TraceFile::close() {
  HVD_RETURN_IF_ERROR(flush());
  HVD_RETURN_IF_ERROR(make_room(written_ + 1));
  HVD_RETURN_IF_ERROR(move_bracket(written_ + 1));
  HVD_RETURN_IF_ERROR(write("\n", written_));
  if (::ftruncate(file_.get(), static_cast<off_t>(bracket_ + 1)) != 0) return cannot("shorten", errno);
  file_.reset();
  return {};
}

// Makes room for events up to the position `end`.
Status TraceFile::make_room(std::uint64_t end) {
  if (end <= bracket_) return {};
  std::uint64_t more = std::max(std::clamp(size_, least_space, most_space), end + 1 - size_);
  std::uint64_t new_size = size_ + (more + page_bytes - 1) / page_bytes * page_bytes;
  static const std::string blank(least_space, ' ');
  for (std::uint64_t at = size_; at < new_size; at += blank.size()) {
    auto status = write(std::string_view(blank).substr(0, new_size - at), at);
    if (status) continue;
    (void)::ftruncate(file_.get(), static_cast<off_t>(size_));
    return status;
  }
  size_ = new_size;
  return move_bracket(size_ - 1);
}

Status TraceFile::move_bracket(std::uint64_t to) {
  if (to == bracket_) return {};
  std::uint64_t from = std::exchange(bracket_, to);
  {
    MappedByte old_place(file_.get(), from, ']'), new_place(file_.get(), to, ' ');
    if (old_place.is_there() && new_place.is_there()) {
      *old_place = ' ';
      *new_place = ']';
      return {};
    }
  }
  HVD_RETURN_IF_ERROR(write(" ", from));
  auto status = write("]", to);
  if (status) return status;
  bracket_ = from;
  (void)write("]", from);
  return status;
}

Status TraceFile::write(std::string_view bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    ssize_t count = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return cannot("write to", count == 0 ? ENOSPC : errno);
    bytes.remove_prefix(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return {};
}

}  // namespace hvd::runtime
