#pragma once
// Makes events of Chrome's trace format out of the engine's records, in the form that Horovod's users know: a tensor is
// a "process", whose spans NEGOTIATE_<OP> and <OP> follow each other; inside of <OP> are QUEUE and <TRANSPORT>_<OP>.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/data_type.hpp"
#include "base/ids.hpp"
#include "base/verb.hpp"
#include "runtime/observers/trace_file.hpp"
#include "runtime/observers/trace_queue.hpp"

namespace hvd::runtime {

// What the file is about; files of several ranks are merged by it.
struct TraceHeader {
  std::int64_t start_since_epoch_us = 0;
  std::int64_t start_of_steady_clock_us = 0;  // equal clocks on all ranks of a host
  int rank = 0, size = 1;
  std::string host, node, job;
};

// The text in the form of a JSON string, without quotes; bytes that are no UTF-8 are replaced.
std::string escaped(std::string_view text);

// Owned by one thread. Spans are nested for any order of records, as long as those of one place begin with `operation`
// and go on with `submitted` … `finished` or `failed`.
class TraceEvents {
 public:
  static constexpr std::size_t places = 1 << 16;

  TraceEvents(TraceFile& file, const TraceHeader& header, bool marks_batches);
  void take(const TraceRecord& record, std::string_view text);
  // Ends the spans that are open.
  void close(std::int64_t time_ns);

 private:
  // A row of the display. Operations of one name and set follow each other in it, whatever their shapes.
  struct Row {
    int pid = 0;  // 0: has not been shown yet
    std::string key;
    std::string pid_text;  // ,"pid":17
    std::int64_t last_ns = 0;
    std::vector<std::pair<std::int64_t, int>> ready;  // time and rank, before this rank submits it
    bool is_negotiating = false;
  };
  struct Place {
    std::shared_ptr<Row> row;
    TraceOperation operation{};
    std::vector<std::int64_t> shape;
    std::string verb;       // NEGOTIATE_ALLREDUCE
    std::string arguments;  // of the last event; empty where they differ from use to use
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
  std::vector<Place> places_;  // as many as were used
  std::vector<Way> ways_;
  std::unordered_map<std::string, std::shared_ptr<Row>> rows_;  // by set and name
  int next_pid_ = 1;
  struct Batch {
    std::vector<std::uint16_t> places;
    std::size_t left = 0;
  };
  std::unordered_map<std::uint64_t, Batch> batches_;  // that are under way
  std::uint64_t last_marked_ = ~std::uint64_t{0};
  std::int64_t last_us_ = -1;
  std::string time_text_;  // ,"ts":… of last_us_: many events have one time
  std::string event_, arguments_, name_;
};

}  // namespace hvd::runtime
