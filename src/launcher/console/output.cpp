#include "launcher/console/output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <filesystem>

namespace hvd::launcher {
namespace {

constexpr std::size_t remembered_lines = 12;
constexpr std::size_t remembered_line_bytes = 500;

// Returns the time as Python's time.asctime() does: "Thu Nov 21 07:59:00 2026".
std::string time_text() {
  std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[64];
  return {text, std::strftime(text, sizeof text, "%a %b %e %H:%M:%S %Y", &local)};
}

std::string padded(int rank, int size) {
  std::string text = std::to_string(rank);
  std::size_t width = std::to_string(size - 1).size();
  return text.size() < width ? std::string(width - text.size(), '0') + text : text;
}

bool same_file(int a, int b) {
  struct stat one {
  }, other{};
  return ::fstat(a, &one) == 0 && ::fstat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

bool write_fully(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace

void LineCutter::feed(std::string_view bytes, const std::function<void(Piece)>& emit) {
  if (bytes.empty()) return;
  if (std::exchange(has_returned_, bytes.ends_with('\r')) && bytes.starts_with('\n')) {
    emit({bytes.substr(0, 1), true});
    bytes.remove_prefix(1);
  }
  while (!bytes.empty()) {
    std::size_t end = bytes.find_first_of("\r\n");
    if (end == std::string_view::npos) {
      if (partial_.size() + bytes.size() < longest) {
        partial_.append(bytes);
        return;
      }
      end = longest - partial_.size();
    } else {
      bool both = bytes[end] == '\r' && end + 1 < bytes.size() && bytes[end + 1] == '\n';
      end += both ? 2 : 1;
    }
    if (partial_.empty()) {
      emit({bytes.substr(0, end)});
    } else {
      partial_.append(bytes.substr(0, end));
      emit({partial_});
      partial_.clear();
    }
    bytes.remove_prefix(end);
  }
}

// O_NONBLOCK belongs to the open file. We share the file with the shell and others, and setting O_NONBLOCK would change
// their reads and writes. Therefore we open terminals and pipes once more for ourselves. Sockets take a flag for each
// call. Files do not block.
Sink::Sink(int descriptor) : descriptor_(descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    descriptor_ = -1;
    return;
  }
  if (S_ISSOCK(status.st_mode)) kind_ = Kind::socket;
  if (!S_ISFIFO(status.st_mode) && !(S_ISCHR(status.st_mode) && ::isatty(descriptor) != 0)) return;
  std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  reopened_ = posix::FileDescriptor(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  // If this user may not open the terminal (after su), small writes to it do not block once poll() reports it as ready.
  if (reopened_) descriptor_ = reopened_.get();
  else kind_ = Kind::small_pieces;
}

void Sink::add(std::string_view text) {
  if (!broken_ && descriptor_ >= 0) pending_.append(text);
}

void Sink::abandon() {
  broken_ = true;
  pending_.clear();
  written_ = 0;
}

void Sink::throw_away(int why) {
  if (!std::exchange(has_failed_, true)) failed_with_ = why;
  pending_.clear();
  written_ = 0;
}

void Sink::flush() {
  while (!broken_ && pending() > 0) {
    const char* from = pending_.data() + written_;
    ssize_t count = 0;
    if (kind_ == Kind::socket) {
      count = ::send(descriptor_, from, pending(), MSG_DONTWAIT | MSG_NOSIGNAL);
    } else if (kind_ == Kind::small_pieces) {
      pollfd ready{descriptor_, POLLOUT, 0};
      if (::poll(&ready, 1, 0) <= 0) break;
      count = ::write(descriptor_, from, std::min<std::size_t>(pending(), 4096));
    } else {
      count = ::write(descriptor_, from, pending());
    }
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (count < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) return throw_away(errno);
    if (count < 0) return abandon();
    written_ += static_cast<std::size_t>(count);
  }
  if (written_ == pending_.size()) {
    pending_.clear();
    written_ = 0;
  } else if (written_ > (1 << 20)) {
    pending_.erase(0, written_);
    written_ = 0;
  }
}

Printer::Printer(PrinterOptions options)
    : options_(std::move(options)),
      ranks_(static_cast<std::size_t>(options_.size)),
      sinks_{Sink(STDOUT_FILENO), Sink(STDERR_FILENO)},
      same_place_(same_file(STDOUT_FILENO, STDERR_FILENO)) {}

Printer::~Printer() = default;

Status Printer::open_files() {
  std::error_code failed;
  std::filesystem::create_directories(options_.folder, failed);
  if (failed || ::access(options_.folder.c_str(), W_OK) != 0)
    return Error(ErrorCode::system, "--output-filename: the folder " + options_.folder + " cannot be written: " +
                                        (failed ? failed : std::error_code(errno, std::generic_category())).message());
  for (int rank = 0; rank < options_.size; ++rank) {
    auto files = make_files("rank." + padded(rank, options_.size));
    if (!files) return files.error();
    ranks_[static_cast<std::size_t>(rank)].files = std::move(*files);
  }
  return {};
}

Result<std::shared_ptr<Printer::Files>> Printer::make_files(const std::string& name) const {
  auto files = std::make_shared<Files>();
  std::string folder = options_.folder + "/" + name;
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed)
    return Error(ErrorCode::system, "--output-filename: the folder " + folder + " cannot be made: " + failed.message());
  for (const char* stream : {"stdout", "stderr"}) {
    std::string path = folder + "/" + stream;
    posix::FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0666));
    if (!file) return system_error("--output-filename: " + path + " cannot be written", errno);
    (*files)[stream[3] == 'o' ? 0 : 1] = std::move(file);
  }
  return files;
}

Status Printer::admit(Rank process, const std::string& name) {
  auto index = static_cast<std::size_t>(process.value);
  if (index >= ranks_.size()) ranks_.resize(index + 1);
  if (options_.folder.empty()) return {};
  std::shared_ptr<Files>& files = files_by_name_[name];
  if (files == nullptr) {
    auto made = make_files(name);
    if (!made) return made.error();
    files = std::move(*made);
  }
  ranks_[index].files = files;
  return {};
}

void Printer::set_label(Rank process, std::string label) {
  ranks_[static_cast<std::size_t>(process.value)].label = std::move(label);
}

void Printer::add(const Output& output) {
  auto index = static_cast<std::size_t>(output.rank.value);
  auto stream = static_cast<std::size_t>(output.stream);
  if (index >= ranks_.size() || stream > 1) return;
  const Files* files = ranks_[index].files.get();
  if (files != nullptr && !file_failed_ && !write_fully((*files)[stream].get(), output.bytes)) {
    file_failed_ = true;
    say("horovodrun: writing below --output-filename " + options_.folder + " failed (" +
        system_error("reason", errno).message + "); the files end here, the job goes on");
  }
  ranks_[index].cutters[stream].feed(output.bytes, [&](LineCutter::Piece piece) {
    if (piece.is_rest) complete(output.rank, output.stream, piece.text);
    else print(output.rank, output.stream, piece.text);
  });
  sink(output.stream).flush();
}

void Printer::finish() {
  for (std::size_t index = 0; index < ranks_.size(); ++index) {
    for (Stream stream : {Stream::standard_output, Stream::standard_error}) {
      std::string rest = ranks_[index].cutters[static_cast<std::size_t>(stream)].take_rest();
      if (!rest.empty()) print(Rank{static_cast<std::int32_t>(index)}, stream, rest);
    }
  }
}

void Printer::print(Rank rank, Stream stream, std::string_view line) {
  const char* name = stream == Stream::standard_output ? "stdout" : "stderr";
  Sink& to = sink(stream);
  if (!to.broken()) {
    if (options_.timestamps) to.add(time_text());
    const std::string& label = ranks_[static_cast<std::size_t>(rank.value)].label;
    to.add("[" + (label.empty() ? std::to_string(rank.value) : label) + "]<" + name + ">:");
    to.add(line);
    // A line that was cut, or that has no end, must not run into the line of the next rank.
    if (line.back() != '\n' && line.back() != '\r') to.add("\n");
    last_of(stream) = {rank, stream};
  }

  if (stream != Stream::standard_error) return;
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  if (line.empty()) return;
  auto& last = ranks_[static_cast<std::size_t>(rank.value)].last_errors;
  last.emplace_back(line.substr(0, remembered_line_bytes));
  if (last.size() > remembered_lines) last.pop_front();
}

// After a line of another rank, the rest of the line's end would print an empty line.
void Printer::complete(Rank rank, Stream stream, std::string_view rest_of_end) {
  if (last_of(stream) == std::pair(rank, stream)) sink(stream).add(rest_of_end);
}

void Printer::say(std::string_view line) {
  for (Stream stream : {Stream::standard_error, Stream::standard_output}) {
    Sink& to = sink(stream);
    last_of(stream).first = Rank{-1};
    to.add(line);
    to.add("\n");
    to.flush();
    if (same_place_ || !sink(Stream::standard_error).has_failed()) return;
  }
}

std::vector<std::string> Printer::last_errors(Rank rank) const {
  const auto& last = ranks_[static_cast<std::size_t>(rank.value)].last_errors;
  return {last.begin(), last.end()};
}

}  // namespace hvd::launcher
