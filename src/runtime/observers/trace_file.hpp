#pragma once
// A file that is a valid JSON array at any instant, also while it grows and after SIGKILL.
//
// 1. The closing bracket is far behind the last event. The space between them is blank, which JSON allows.
// 2. An event never crosses the border of a page. If it does not fit into the rest of a page, that rest stays blank. If
//    the process is killed, the kernel cuts a write between two pages, so only whole events are in the file.
// 3. When the blank space is used up, more blank space is written behind the bracket (JSON allows that as well), and
//    the bracket moves to the end of the new space. Two calls of pwrite() would not be safe: on a busy disk the second
//    call waits, and a process that is killed then leaves no bracket. So the bytes at both places are mapped and made
//    writable first. Then two stores, one after the other, move the bracket. The space doubles each time, up to 4 MiB,
//    so this is rare.
// 4. A full disk is noticed when blank space is written. The file then stays unchanged.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::runtime {

// Only one thread uses it.
class TraceFile {
 public:
  static constexpr std::size_t page_bytes = 4096;
  static constexpr std::size_t longest_event = page_bytes - 2;

  // Creates the file, or empties an existing one; it must be an ordinary file.
  static Result<TraceFile> create(const std::string& path);

  // Adds a JSON value of at most longest_event bytes. It is buffered until flush().
  void add(std::string_view event);
  std::size_t buffered_bytes() const { return buffer_.size(); }
  // Writes the buffered events. After an error they are lost, and the file is unchanged.
  Status flush();
  // Removes the blank space. Nothing may be added afterwards.
  Status close();

 private:
  TraceFile(std::string path, posix::FileDescriptor file) : path_(std::move(path)), file_(std::move(file)) {}
  Status make_room(std::uint64_t end);
  Status move_bracket(std::uint64_t to);
  Status write(std::string_view bytes, std::uint64_t offset);
  Error cannot(const char* what, int errno_value) const;

  std::string path_;
  posix::FileDescriptor file_;
  std::string buffer_;         // the events for the position written_
  std::uint64_t written_ = 0;  // end of the events in the file
  std::uint64_t bracket_ = 0;  // position of the closing bracket in the file
  std::uint64_t size_ = 0;     // size of the file, a number of whole pages
  bool is_empty_ = true;       // the file has no event yet
};

}  // namespace hvd::runtime
