#pragma once
// Turns the engine's records into events of Chrome's trace format, in the form that Horovod's users know. A tensor is a
// "process" whose spans NEGOTIATE_<OP> and <OP> follow each other. Inside <OP> there are QUEUE and <TRANSPORT>_<OP>. A
// device is another, whose spans are batches on it, with their stages; they overlap, and so do the parts of a batch.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/data_type.hpp"
#include "base/ids.hpp"
#include "base/stages.hpp"
#include "base/verb.hpp"
#include "runtime/observers/trace_file.hpp"
#include "runtime/observers/trace_queue.hpp"

namespace hvd::runtime {

// Facts about the file, by which the files of several ranks can be merged.
struct TraceHeader {
  std::int64_t start_since_epoch_us = 0;
  std::int64_t start_of_steady_clock_us = 0;  // ranks of one host have the same clock
  int rank = 0, size = 1;
  std::string host, node, job;
};

// Returns the text with capitals in place of the letters from a to z.
std::string in_capitals(std::string_view text);
// Returns the text as a JSON string without quotes. Bytes that are not UTF-8 are replaced.
std::string escaped(std::string_view text);
// Returns Horovod's name of the activity, by which its users look for it.
std::string activity_of(const StageOnDevice& stage);

// Owned by one thread. Spans are nested correctly for any order of records, if the records of each place are in the
// order `operation`, `submitted`, …, `finished` or `failed`.
class TraceEvents {
 public:
  static constexpr std::size_t places = 1 << 16;

  TraceEvents(TraceFile& file, const TraceHeader& header, bool marks_batches);
  void take(const TraceRecord& record, std::string_view text);
  // Ends all open spans.
  void close(std::int64_t time_ns);

 private:
  // A row of the display. Operations of the same name and set follow each other in one row, even if their shapes
  // differ.
  struct Row {
    int pid = 0;  // the row's number in the file; 0: not shown yet
    std::string key;
    std::string pid_text;  // the text ,"pid":17 for this row
    std::int64_t last_ns = 0;
    std::vector<std::pair<std::int64_t, int>> ready;  // time and rank; before this rank has submitted it
    bool is_negotiating = false;
  };
  struct Place {
    std::shared_ptr<Row> row;
    TraceOperation operation{};
    std::vector<std::int64_t> shape;
    std::string verb;       // name of the span, such as NEGOTIATE_ALLREDUCE
    std::string arguments;  // arguments of the last event; empty if they differ between uses
    enum class State : std::uint8_t { idle, negotiating, agreed } state = State::idle;
    std::int64_t rows = 0;
    std::uint64_t batch = 0;
  };
  struct Way {
    std::string transport, algorithm;
  };

  void learn_operation(const TraceRecord& record, std::string_view text);
  void learn_way(const TraceRecord& record, std::string_view text);
  void ready(const TraceRecord& record, std::string_view name);
  void submitted(const TraceRecord& record);
  void agreed(const TraceRecord& record);
  void started(const TraceRecord& record);
  void issued(const TraceRecord& record, std::string_view text);
  void stage_ended(const TraceRecord& record, std::string_view text);
  void ended(std::uint64_t batch, std::int64_t time_ns);
  void on_device(const char* phase, int pid, std::uint64_t batch, std::size_t part, std::string_view name,
                 std::int64_t time_ns);
  void over(const TraceRecord& record, const std::string* error);
  void leave_batch(const Place& place);
  std::string arguments_of(const Place& place) const;
  std::shared_ptr<Row> row_of(std::int32_t set, std::string_view name);
  void show(Row& row);

  void begin(Row& row, std::string_view name, std::int64_t time_ns, std::string_view arguments = {});
  void end(Row& row, std::int64_t time_ns, std::string_view arguments = {});
  void instant(Row& row, int rank, std::int64_t time_ns);
  void metadata(const char* what, int pid, std::string_view arguments);
  std::int64_t in_order(Row& row, std::int64_t time_ns);
  void add_time(std::int64_t time_ns);
  void mark(std::string_view name, std::int64_t time_ns);
  void add_event();

  TraceFile& file_;
  int rank_;
  bool marks_batches_;
  std::vector<Place> places_;  // has only as many places as have been used
  std::vector<Way> ways_;
  std::unordered_map<std::string, std::shared_ptr<Row>> rows_;  // rows by process set and name
  int next_pid_ = 1;
  int next_pid_of_device_ = 1'000'000'000;  // Horovod's users count on tensors alone having the numbers from 1 on
  struct Batch {
    std::vector<std::uint16_t> places;
    std::size_t left = 0;
  };
  std::unordered_map<std::uint64_t, Batch> batches_;  // batches that are under way
  struct Issued {
    std::string key, name;  // the key of its device's row
    std::int64_t since_ns = 0;
    std::vector<std::int64_t> ends_ns;  // of the parts: where the last stage ended; 0: no stage yet
  };
  static std::string name_of_part(const Issued& batch, std::size_t part);
  std::map<std::uint64_t, Issued> issued_;  // batches that are on a device
  std::map<std::string, int> devices_;      // the rows of devices, by their pid
  std::uint64_t last_marked_ = ~std::uint64_t{0};
  std::int64_t last_us_ = -1;
  std::string time_text_;  // ,"ts":… of last_us_; kept because many events have the same time
  std::string event_, arguments_, name_;
};

}  // namespace hvd::runtime
