#pragma once
// A file that is a JSON array at any instant, also while it grows and after SIGKILL.
//
//  1. The closing bracket stands far behind the last event; what lies between is blank, which JSON allows.
//  2. An event lies within one page, and the rest of a page that it does not fit into stays blank. So a write that is
//     cut between two pages, as the kernel does when the process is killed, leaves whole events.
//  3. When the blank space is used up, more of it is written behind the bracket (JSON allows that as well), and the
//     bracket moves to its end. Two calls of pwrite() would not do: a busy disk makes the second one wait, and a
//     process that is killed there leaves no bracket. So both places are mapped and made writable first; then the
//     bracket moves by two stores, one after the other. The space doubles each time, up to 4 MiB, so this is rare.
//  4. A disk that is full is noticed when space is written: the file stays as it is.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "native/posix/file_descriptor.hpp"

namespace hvd::runtime {

// Owned by one thread.
class TraceFile {
 public:
  static constexpr std::size_t page_bytes = 4096;
  static constexpr std::size_t longest_event = page_bytes - 2;

  // Creates the file, or empties an existing one; it must be an ordinary file.
  static Result<TraceFile> create(const std::string& path);

  // A JSON value of at most longest_event bytes. Buffered until flush().
  void add(std::string_view event);
  std::size_t buffered_bytes() const { return buffer_.size(); }
  // After an error everything that was buffered is lost, and the file is as it was.
  Status flush();
  // Removes the blank space. Nothing may follow.
  Status close();

 private:
  TraceFile(std::string path, posix::FileDescriptor file) : path_(std::move(path)), file_(std::move(file)) {}
  Status make_room(std::uint64_t end);
  Status move_bracket(std::uint64_t to);
  Status write(std::string_view bytes, std::uint64_t offset);
  Error cannot(const char* what, int errno_value) const;

  std::string path_;
  posix::FileDescriptor file_;
  std::string buffer_;         // what comes at written_
  std::uint64_t written_ = 0;  // end of the events in the file
  std::uint64_t bracket_ = 0;  // its place
  std::uint64_t size_ = 0;     // of the file; whole pages
  bool is_empty_ = true;       // no event yet
};

}  // namespace hvd::runtime
