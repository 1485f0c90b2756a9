#pragma once
// Prints the output of the ranks in whole lines, each with its rank before it, to our own output, and into files if
// wanted. Nothing here blocks, and nothing is lost: what the terminal does not take yet is kept.
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "launcher/wire/messages.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::launcher {

// Cuts a stream of bytes into lines. A line ends with '\n', '\r' or "\r\n". Any other byte is passed on unchanged.
class LineCutter {
 public:
  // A piece of a line, with the line's end. A '\r' may belong to a progress bar, so a line with it is passed on before
  // the next byte is known. If the next byte is a '\n', it is passed on as the rest of the line's end (`is_rest`).
  struct Piece {
    std::string_view text;
    bool is_rest = false;
  };
  // Calls emit(piece) for every complete line. A line longer than `longest` is cut there, so that a program that never
  // ends a line cannot take all memory.
  void feed(std::string_view bytes, const std::function<void(Piece)>& emit);
  // Returns the last line, without an end, if the stream did not end with a line's end.
  std::string take_rest() { return std::exchange(partial_, {}); }

  static constexpr std::size_t longest = 16 << 20;

 private:
  std::string partial_;
  bool has_returned_ = false;  // the last byte was a '\r'
};

// A file that text is written to. Its reader may be slow, or may go away.
class Sink {
 public:
  explicit Sink(int descriptor);    // the descriptor is borrowed; if it is closed, all text is thrown away
  void add(std::string_view text);  // adds the text to the queue; does not write
  void flush();                     // writes as much as is taken without waiting
  void abandon();                   // the reader is known to be gone
  // The error because of which text was thrown away although the reader is there (a full disk); 0: there was none. Each
  // error is reported once. Later text is tried again.
  int take_failure() noexcept { return std::exchange(failed_with_, 0); }
  bool has_failed() const noexcept { return has_failed_; }  // true if an error has made the sink throw text away
  std::size_t pending() const noexcept { return pending_.size() - written_; }
  bool broken() const noexcept { return broken_; }         // the reader is gone: all text is thrown away
  int descriptor() const noexcept { return descriptor_; }  // the descriptor for poll(); -1: nothing to wait for

 private:
  void throw_away(int why);
  enum class Kind { patient, socket, small_pieces };
  int descriptor_;
  posix::FileDescriptor reopened_;
  Kind kind_ = Kind::patient;
  std::string pending_;
  std::size_t written_ = 0;
  bool broken_ = false, has_failed_ = false;
  int failed_with_ = 0;
};

struct PrinterOptions {
  bool timestamps = false;
  std::string folder;  // folder of the files rank.<rank>/stdout and stderr; empty: no files
  int size = 1;        // ranks; 0 in a job whose processes are admitted
};

class Printer {
 public:
  explicit Printer(PrinterOptions options);
  ~Printer();
  Status open_files();  // makes the folders; call it once if options.folder is set

  // For a job whose ranks come and go, where Output::rank is the number of a process: makes a place for it, and its
  // files below options.folder in the folder `name`, if files are wanted. Processes of one name share its files.
  Status admit(Rank process, const std::string& name);
  // From now on the lines of this process begin with this label.
  void set_label(Rank process, std::string label);

  void add(const Output& output);
  void finish();  // call it when no more output comes: prints the unfinished lines
  // Prints a line of our own between the ranks' lines, to standard error. If standard error has ever been full, the
  // line goes to standard output, too.
  void say(std::string_view line);
  std::vector<std::string> last_errors(Rank rank) const;  // the last lines that the rank wrote to standard error

  Sink& sink(Stream stream) { return sinks_[same_place_ ? 0 : static_cast<std::size_t>(stream)]; }
  std::size_t pending() const { return sinks_[0].pending() + sinks_[1].pending(); }

 private:
  void print(Rank rank, Stream stream, std::string_view line);
  void complete(Rank rank, Stream stream, std::string_view rest_of_end);
  std::pair<Rank, Stream>& last_of(Stream stream) { return last_[same_place_ ? 0 : static_cast<std::size_t>(stream)]; }
  using Files = std::array<posix::FileDescriptor, 2>;  // standard output and error
  struct PerRank {
    LineCutter cutters[2];
    std::shared_ptr<Files> files;  // null: no files
    std::deque<std::string> last_errors;
    std::string label;
  };
  Result<std::shared_ptr<Files>> make_files(const std::string& name) const;
  PrinterOptions options_;
  std::vector<PerRank> ranks_;
  std::map<std::string, std::shared_ptr<Files>> files_by_name_;  // of processes that come and go
  Sink sinks_[2];
  std::pair<Rank, Stream> last_[2] = {{Rank{-1}, {}}, {Rank{-1}, {}}};  // the stream whose line each sink got last
  bool same_place_;  // standard output and error are the same file (2>&1): one queue is used, or lines would mix if the
                     // reader is slow
  bool file_failed_ = false;
};

}  // namespace hvd::launcher
