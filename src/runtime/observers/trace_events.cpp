#include "runtime/observers/trace_events.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/panic.hpp"
#include "base/text/cut_text.hpp"

namespace hvd::runtime {

using namespace std::string_view_literals;

namespace {

constexpr std::string_view negotiate = "NEGOTIATE_", arguments_follow = R"(,"args":{)";
// The longest text of an event. An event must fit into a page even if every character is escaped.
constexpr std::size_t longest_text = 600;
// If there are more names than this, all rows are forgotten at once. A name that comes again then gets a new row.
constexpr std::size_t most_rows = 1 << 16;
constexpr std::size_t most_early = 1 << 16;  // ranks that were ready for one operation before this rank

void add_number(std::string& out, std::int64_t number) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

// Returns the length in bytes of the UTF-8 character at the beginning of the text; 0 if there is no valid one.
std::size_t character_bytes(std::string_view text) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  std::size_t count = byte(0) < 0x80 ? 1 : byte(0) < 0xc2 ? 0 : byte(0) < 0xe0 ? 2 : byte(0) < 0xf0 ? 3 : 4;
  if (count == 0 || byte(0) > 0xf4 || text.size() < count) return 0;
  for (std::size_t i = 1; i < count; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  bool is_overlong = (byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xf0 && byte(1) < 0x90);
  bool is_no_character = (byte(0) == 0xed && byte(1) > 0x9f) || (byte(0) == 0xf4 && byte(1) > 0x8f);
  return is_overlong || is_no_character ? 0 : count;
}

void add_verb(std::string& out, Verb verb) {
  for (const char* letter = name_of(verb); *letter != 0; ++letter) out += static_cast<char>(*letter - 'a' + 'A');
}

// Adds a name such as MPI_BCAST, which is how Horovod's users know BROADCAST.
void add_activity(std::string& out, std::string_view transport, Verb verb) {
  if (!transport.empty()) out += in_capitals(transport) + '_';
  if (verb == Verb::broadcast) out += "BCAST";
  else if (verb == Verb::adasum) out += "ADASUM_ALLREDUCE";
  else add_verb(out, verb);
}

}  // namespace

std::string in_capitals(std::string_view text) {
  std::string out;
  for (char letter : text) out += static_cast<char>(letter >= 'a' && letter <= 'z' ? letter - 'a' + 'A' : letter);
  return out;
}

std::string escaped(std::string_view text) {
  std::string out;
  bool is_cut = text.size() > longest_text;
  text = cut_text(text, longest_text);
  while (!text.empty()) {
    std::size_t count = character_bytes(text);
    unsigned char first = static_cast<unsigned char>(text[0]);
    if (count == 0) {
      out += "\\ufffd";
    } else if (first < 0x20) {
      constexpr char digits[] = "0123456789abcdef";
      out += {'\\', 'u', '0', '0', digits[first >> 4], digits[first & 15]};
    } else {
      if (first == '"' || first == '\\') out += '\\';
      out += text.substr(0, count);
    }
    text.remove_prefix(std::max<std::size_t>(count, 1));
  }
  return is_cut ? out + "..." : out;
}

std::string activity_of(const StageOnDevice& stage) {
  std::string name;
  switch (stage.what) {
    case StageOnDevice::What::waits: return "WAIT_FOR_DATA";
    case StageOnDevice::What::packs: return "MEMCPY_IN_FUSION_BUFFER";
    case StageOnDevice::What::travels: return add_activity(name, stage.transport, stage.verb), name;
    case StageOnDevice::What::to_host: return "MEMCPY_IN_HOST_BUFFER";
    case StageOnDevice::What::from_host: return "MEMCPY_OUT_HOST_BUFFER";
    case StageOnDevice::What::unpacks: return "MEMCPY_OUT_FUSION_BUFFER";
  }
  panic("a stage on a device has no name");
}

TraceEvents::TraceEvents(TraceFile& file, const TraceHeader& header, bool marks_batches)
    : file_(file), rank_(header.rank), marks_batches_(marks_batches) {
  metadata("process_name", 0, "\"start_time_since_epoch_in_micros\":" + std::to_string(header.start_since_epoch_us));
  metadata("process_sort_index", 0, "\"sort_index\":0");
  metadata("horovod", 0,
           "\"rank\":" + std::to_string(header.rank) + ",\"size\":" + std::to_string(header.size) + ",\"host\":\"" +
               escaped(header.host) + "\",\"node\":\"" + escaped(header.node) + "\",\"job\":\"" + escaped(header.job) +
               "\",\"start_of_steady_clock_in_micros\":" + std::to_string(header.start_of_steady_clock_us));
}

void TraceEvents::take(const TraceRecord& record, std::string_view text) {
  switch (record.kind) {
    case TraceRecord::Kind::operation: return learn_operation(record, text);
    case TraceRecord::Kind::way: return learn_way(record, text);
    case TraceRecord::Kind::ready: return ready(record, text);
    case TraceRecord::Kind::submitted: return submitted(record);
    case TraceRecord::Kind::agreed: return agreed(record);
    case TraceRecord::Kind::started: return started(record);
    case TraceRecord::Kind::issued: return issued(record, text);
    case TraceRecord::Kind::stage_ended: return stage_ended(record, text);
    case TraceRecord::Kind::ended: return ended(record.value, record.time_ns);
    case TraceRecord::Kind::finished: return over(record, nullptr);
    case TraceRecord::Kind::failed: {
      std::string error(text);
      return over(record, &error);
    }
    case TraceRecord::Kind::dropped:
      mark("DROPPED", record.time_ns);
      event_ += ",\"args\":{\"operations\":";
      add_number(event_, static_cast<std::int64_t>(record.value));
      event_ += '}';
      return add_event();
  }
}

void TraceEvents::learn_operation(const TraceRecord& record, std::string_view text) {
  if (record.place >= places_.size()) places_.resize(record.place + std::size_t{1});
  Place& place = places_[record.place];
  std::memcpy(&place.operation, text.data(), sizeof place.operation);
  text.remove_prefix(sizeof place.operation);
  place.shape.resize(place.operation.dimensions);
  std::size_t bytes = place.shape.size() * sizeof(std::int64_t);
  if (bytes != 0) std::memcpy(place.shape.data(), text.data(), bytes);
  text.remove_prefix(bytes);
  place.row = row_of(place.operation.set, text);
  place.state = Place::State::idle;
  auto verb = static_cast<Verb>(place.operation.verb);
  place.verb = std::string(negotiate);
  add_verb(place.verb, verb);
  place.arguments.clear();
  if (hvd::row_of(verb).agreed != VerbRow::Agreed::all_but_first) place.arguments = arguments_of(place);
}

std::string TraceEvents::arguments_of(const Place& place) const {
  std::string text = "\"dtype\":\"";
  text += name_of(static_cast<DataType>(place.operation.dtype));
  text += "\",\"shape\":\"[";
  bool has_rows = hvd::row_of(static_cast<Verb>(place.operation.verb)).agreed == VerbRow::Agreed::all_but_first;
  for (std::size_t i = 0; i < place.shape.size(); ++i) {
    if (i > 0) text += ", ";
    add_number(text, i == 0 && has_rows ? place.rows : place.shape[i]);
  }
  return text += "]\"";
}

void TraceEvents::learn_way(const TraceRecord& record, std::string_view text) {
  std::size_t end = text.find('\0');
  ways_.resize(std::max<std::size_t>(ways_.size(), record.number + std::size_t{1}));
  ways_[record.number] = {std::string(text.substr(0, end)), std::string(text.substr(end + 1))};
}

std::shared_ptr<TraceEvents::Row> TraceEvents::row_of(std::int32_t set, std::string_view name) {
  std::string key = std::to_string(set) + ' ';
  key += name;
  if (auto known = rows_.find(key); known != rows_.end()) return known->second;
  if (rows_.size() >= most_rows) rows_.clear();
  auto row = std::make_shared<Row>();
  row->key = key;
  rows_.emplace(std::move(key), row);
  return row;
}

void TraceEvents::show(Row& row) {
  row.pid = next_pid_++;
  row.pid_text = ",\"pid\":" + std::to_string(row.pid);
  std::size_t name_begins = row.key.find(' ') + 1;
  std::string name = escaped(std::string_view(row.key).substr(name_begins));
  std::string set = row.key.substr(0, name_begins - 1);
  if (set != "0") name += " (process set " + set + ")";
  metadata("process_name", row.pid, "\"name\":\"" + name + '"');
  metadata("process_sort_index", row.pid, "\"sort_index\":" + std::to_string(row.pid));
}

// Before this rank has submitted the operation only its name is known, so the event is kept for later.
void TraceEvents::ready(const TraceRecord& record, std::string_view name) {
  auto rank = static_cast<std::int32_t>(record.value);
  if (rank == rank_) return;  // submitted() records the event of this rank
  std::shared_ptr<Row> row = row_of(static_cast<std::int32_t>(record.value >> 32), name);
  if (row->is_negotiating) instant(*row, rank, record.time_ns);
  else if (row->ready.size() < most_early) row->ready.emplace_back(record.time_ns, rank);
}

void TraceEvents::submitted(const TraceRecord& record) {
  Place& place = places_[record.place];
  Row& row = *place.row;
  if (row.pid == 0) show(row);
  place.state = Place::State::negotiating;
  place.rows = static_cast<std::int64_t>(record.value);
  begin(row, place.verb, row.ready.empty() ? record.time_ns : std::min(record.time_ns, row.ready.front().first));
  for (auto [time_ns, rank] : row.ready)
    if (time_ns <= record.time_ns) instant(row, rank, time_ns);
  instant(row, rank_, record.time_ns);
  for (auto [time_ns, rank] : row.ready)
    if (time_ns > record.time_ns) instant(row, rank, time_ns);
  row.ready.clear();
  row.is_negotiating = true;
}

void TraceEvents::agreed(const TraceRecord& record) {
  Place& place = places_[record.place];
  if (place.state != Place::State::negotiating) return;
  if (marks_batches_ && record.value != last_marked_) {
    last_marked_ = record.value;
    mark("CYCLE_START", record.time_ns);
    add_event();
  }
  Row& row = *place.row;
  row.is_negotiating = false;
  end(row, record.time_ns);
  begin(row, std::string_view(place.verb).substr(negotiate.size()), record.time_ns);
  begin(row, "QUEUE", record.time_ns);
  place.state = Place::State::agreed;
  place.batch = record.value;
  Batch& batch = batches_[record.value];
  batch.places.push_back(record.place);
  ++batch.left;
}

void TraceEvents::started(const TraceRecord& record) {
  auto found = batches_.find(record.value);
  if (found == batches_.end()) return;
  const Way& way = ways_[record.number];
  arguments_.clear();
  if (!way.transport.empty()) arguments_ = "\"algorithm\":\"" + escaped(way.algorithm) + '"';
  name_.clear();
  for (std::uint16_t number : found->second.places) {
    Place& place = places_[number];
    if (place.state != Place::State::agreed || place.batch != record.value) continue;  // the operation has ended
    end(*place.row, record.time_ns);
    // One name serves the whole batch, because its operations have the same verb.
    if (name_.empty() && way.transport.empty()) name_ = escaped(way.algorithm);
    else if (name_.empty()) add_activity(name_, way.transport, static_cast<Verb>(place.operation.verb));
    begin(*place.row, name_, record.time_ns, arguments_);
  }
}

void TraceEvents::issued(const TraceRecord& record, std::string_view text) {
  const std::size_t end = text.find('\0');
  Issued batch{std::string(text.substr(0, end)), escaped(text.substr(end + 1)), record.time_ns, {}};
  int& pid = devices_[batch.key];
  if (pid == 0) {
    pid = next_pid_of_device_++;
    metadata("process_name", pid, "\"name\":\"" + escaped(batch.key) + '"');
    metadata("process_sort_index", pid, "\"sort_index\":" + std::to_string(pid));
  }
  on_device("b", pid, record.value, 0, batch.name, record.time_ns);
  issued_[record.value] = std::move(batch);
}

// A part after the first one has a span of its own, since it overlaps the others.
void TraceEvents::stage_ended(const TraceRecord& record, std::string_view text) {
  auto found = issued_.find(record.value);
  if (found == issued_.end()) return;
  Issued& batch = found->second;
  std::int64_t begin_ns = 0;
  std::memcpy(&begin_ns, text.data(), sizeof begin_ns);
  const std::size_t part = record.place;
  if (part >= batch.ends_ns.size()) batch.ends_ns.resize(part + 1);
  begin_ns = std::max({begin_ns, batch.since_ns, batch.ends_ns[part]});
  const int pid = devices_[batch.key];
  if (part > 0 && batch.ends_ns[part] == 0)
    on_device("b", pid, record.value, part, name_of_part(batch, part), begin_ns);
  batch.ends_ns[part] = std::max(begin_ns, record.time_ns);
  const std::string& name = ways_[record.number].algorithm;
  on_device("b", pid, record.value, part, name, begin_ns);
  on_device("e", pid, record.value, part, name, batch.ends_ns[part]);
}

void TraceEvents::ended(std::uint64_t number, std::int64_t time_ns) {
  auto found = issued_.find(number);
  if (found == issued_.end()) return;
  const Issued& batch = found->second;
  for (std::int64_t end_ns : batch.ends_ns) time_ns = std::max(time_ns, end_ns);
  for (std::size_t part = 1; part < batch.ends_ns.size(); ++part)
    if (batch.ends_ns[part] != 0)
      on_device("e", devices_[batch.key], number, part, name_of_part(batch, part), batch.ends_ns[part]);
  on_device("e", devices_[batch.key], number, 0, batch.name, time_ns);
  issued_.erase(found);
}

std::string TraceEvents::name_of_part(const Issued& batch, std::size_t part) {
  return batch.name + ", part " + std::to_string(part + 1);
}

// Begins or ends a span that may overlap others of its row.
void TraceEvents::on_device(const char* phase, int pid, std::uint64_t batch, std::size_t part, std::string_view name,
                            std::int64_t time_ns) {
  event_ = std::string(R"({"ph":")") + phase + R"(","cat":"device","name":")";
  // Files of several ranks may be merged, so the number is one of this process.
  event_.append(name).append(R"(","id2":{"local":")");
  add_number(event_, static_cast<std::int64_t>(batch));
  if (part > 0) event_ += '.' + std::to_string(part);
  event_ += "\"}";
  add_time(time_ns);
  event_ += ",\"pid\":" + std::to_string(pid);
  add_event();
}

void TraceEvents::over(const TraceRecord& record, const std::string* error) {
  Place& place = places_[record.place];
  if (place.state == Place::State::idle) return;
  Row& row = *place.row;
  row.is_negotiating = false;
  if (place.state == Place::State::agreed) end(row, record.time_ns);
  if (place.arguments.empty()) arguments_ = arguments_of(place);
  else arguments_ = place.arguments;
  if (place.state != Place::State::negotiating) {
    arguments_ += ",\"batch\":";
    add_number(arguments_, static_cast<std::int64_t>(place.batch));
  }
  if (error != nullptr) arguments_ += ",\"error\":\"" + escaped(*error) + '"';
  end(row, record.time_ns, arguments_);
  if (place.state != Place::State::negotiating) leave_batch(place);
  place.state = Place::State::idle;
  // The name of a transient operation does not come again.
  if (place.operation.is_transient != 0) rows_.erase(row.key);
}

void TraceEvents::leave_batch(const Place& place) {
  auto found = batches_.find(place.batch);
  if (found != batches_.end() && --found->second.left == 0) batches_.erase(found);
}

void TraceEvents::close(std::int64_t time_ns) {
  while (!issued_.empty()) ended(issued_.begin()->first, time_ns);
  for (Place& place : places_) {
    if (place.state == Place::State::idle) continue;
    if (place.state == Place::State::agreed) end(*place.row, time_ns);
    end(*place.row, time_ns);
    place.state = Place::State::idle;
  }
}

void TraceEvents::begin(Row& row, std::string_view name, std::int64_t time_ns, std::string_view arguments) {
  event_ = R"({"ph":"B","name":")"sv;
  event_.append(name) += '"';
  add_time(in_order(row, time_ns));
  event_ += row.pid_text;
  if (!arguments.empty()) event_.append(arguments_follow).append(arguments) += '}';
  add_event();
}

void TraceEvents::end(Row& row, std::int64_t time_ns, std::string_view arguments) {
  event_ = R"({"ph":"E")"sv;
  add_time(in_order(row, time_ns));
  event_ += row.pid_text;
  if (!arguments.empty()) event_.append(arguments_follow).append(arguments) += '}';
  add_event();
}

void TraceEvents::instant(Row& row, int rank, std::int64_t time_ns) {
  event_ = R"({"ph":"X","name":")"sv;
  add_number(event_, rank);
  event_ += '"';
  add_time(in_order(row, time_ns));
  event_.append(row.pid_text).append(R"(,"dur":0)"sv);
  add_event();
}

// Begins an event that belongs to all rows. The caller may add more before add_event().
void TraceEvents::mark(std::string_view name, std::int64_t time_ns) {
  event_ = R"({"ph":"i","s":"g","name":")"sv;
  event_.append(name) += '"';
  add_time(time_ns);
  event_ += R"(,"pid":0)"sv;
}

void TraceEvents::metadata(const char* what, int pid, std::string_view arguments) {
  event_ = std::string("{\"name\":\"") + what + "\",\"ph\":\"M\",\"pid\":";
  add_number(event_, pid);
  event_.append(",\"args\":{").append(arguments) += '}';
  add_event();
}

// Returns a time that is not before the row's last event. A rank may be ready for the next use before this rank has
// ended the last one; the event is then shown after that end.
std::int64_t TraceEvents::in_order(Row& row, std::int64_t time_ns) {
  row.last_ns = std::max(row.last_ns, time_ns);
  return row.last_ns;
}

void TraceEvents::add_time(std::int64_t time_ns) {
  std::int64_t time_us = time_ns / 1000;
  if (time_us != last_us_) {
    last_us_ = time_us;
    time_text_ = R"(,"ts":)"sv;
    add_number(time_text_, time_us);
  }
  event_ += time_text_;
}

void TraceEvents::add_event() {
  event_ += '}';
  file_.add(event_);
}

}  // namespace hvd::runtime
