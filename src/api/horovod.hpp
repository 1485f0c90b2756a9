// Horovod for C++ programs: horovod.h with owners, spans and exceptions. Only a header; link with libhorovod.
//
//   horovod::Runtime job;                                    // joins the job that this process was launched into
//   auto gradients = job.allreduce_op<float>("gradients", n, HVD_AVERAGE);   // prepared once …
//   for (…) { auto handle = gradients.start(data); …; handle.wait(); }       // … used every step
#pragma once

#if __cplusplus < 202002L
#error "horovod.hpp needs C++20: compile with -std=c++20 or later (C programs and older C++ include horovod.h)"
#endif

#include <chrono>
#include <cstdint>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "horovod.h"

namespace horovod {

// The exception that is thrown for every status except HVD_OK.
class Failure : public std::runtime_error {
 public:
  explicit Failure(hvd_status status)
      : std::runtime_error(hvd_last_error()), status_(status), id_(hvd_last_error_id()) {}
  hvd_status status() const noexcept { return status_; }
  // The id in docs/errors.md, such as "HVD2101".
  const std::string& id() const noexcept { return id_; }

 private:
  hvd_status status_;
  std::string id_;
};

inline void check(hvd_status status) {
  if (status != HVD_OK) throw Failure(status);
}

template <typename T>
inline constexpr int dtype_of = -1;
template <>
inline constexpr int dtype_of<bool> = HVD_BOOL;
template <>
inline constexpr int dtype_of<std::uint8_t> = HVD_UINT8;
template <>
inline constexpr int dtype_of<std::int8_t> = HVD_INT8;
template <>
inline constexpr int dtype_of<std::uint16_t> = HVD_UINT16;
template <>
inline constexpr int dtype_of<std::int16_t> = HVD_INT16;
template <>
inline constexpr int dtype_of<std::int32_t> = HVD_INT32;
template <>
inline constexpr int dtype_of<std::int64_t> = HVD_INT64;
template <>
inline constexpr int dtype_of<float> = HVD_FLOAT32;
template <>
inline constexpr int dtype_of<double> = HVD_FLOAT64;
template <>
inline constexpr int dtype_of<std::uint32_t> = HVD_UINT32;
template <>
inline constexpr int dtype_of<std::uint64_t> = HVD_UINT64;

// An operation that was started. The handle may be destroyed before the operation is done; the tensor's memory must
// stay valid until then.
class Handle {
 public:
  Handle(hvd_runtime* runtime, hvd_handle handle) : runtime_(runtime), handle_(handle) {}
  Handle(Handle&& other) noexcept : runtime_(other.runtime_), handle_(std::exchange(other.handle_, 0)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(runtime_, other.runtime_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (handle_ != 0) hvd_release(runtime_, handle_);
  }

  bool is_done() const { return hvd_poll(runtime_, handle_) != 0; }
  void wait() const { check(hvd_wait(runtime_, handle_, -1)); }
  // Tensors in device memory: lets `stream` wait for the result.
  void wait_on(void* stream) const { check(hvd_wait_on(runtime_, handle_, stream, -1)); }
  hvd_handle get() const noexcept { return handle_; }

 private:
  hvd_runtime* runtime_;
  hvd_handle handle_;
};

// A prepared operation on tensors of one type and size.
template <typename T>
class Operation {
 public:
  Operation(hvd_runtime* runtime, hvd_op* op, std::size_t count) : runtime_(runtime), op_(op), count_(count) {}

  // Works in place. The memory is borrowed until the handle is done.
  Handle start(std::span<T> data) const { return start(data, data); }
  Handle start(std::span<const T> input, std::span<T> output) const {
    if (input.size() != count_ || output.size() != count_)
      throw std::invalid_argument("the operation was prepared for " + std::to_string(count_) + " elements; got " +
                                  std::to_string(input.size()) + " and " + std::to_string(output.size()));
    hvd_start_arguments arguments = hvd_use_of(op_, input.data(), output.data());
    hvd_handle handle = 0;
    check(hvd_start(runtime_, &arguments, 1, &handle));
    return {runtime_, handle};
  }

 private:
  hvd_runtime* runtime_;
  hvd_op* op_;
  std::size_t count_;
};

// This process's part of the job. A process has at most one at a time.
class Runtime {
 public:
  Runtime() {
    check(hvd_init(&runtime_));
    world_.struct_size = sizeof world_;
    check(hvd_get_world(runtime_, &world_));
  }
  ~Runtime() { hvd_shutdown(runtime_); }
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  int rank() const noexcept { return world_.rank; }
  int size() const noexcept { return world_.size; }
  int local_rank() const noexcept { return world_.local_rank; }
  int local_size() const noexcept { return world_.local_size; }
  const hvd_world& world() const noexcept { return world_; }
  hvd_runtime* get() const noexcept { return runtime_; }

  // Call this after each step, on the thread that waits for the step's operations. Returns true at the same step on all
  // ranks of the set.
  bool should_stop(int process_set = 0) {
    int stops = hvd_should_stop(runtime_, process_set);
    if (stops < 0) check(HVD_INVALID_ARGUMENT);
    return stops != 0;
  }
  void request_stop(const std::string& reason) { check(hvd_request_stop(runtime_, reason.c_str())); }
  // Returns why should_stop() is true; empty as long as nobody has asked to stop.
  std::string stop_reason() {
    const char* reason = hvd_stop_reason(runtime_, nullptr);
    return reason == nullptr ? "" : reason;
  }
  // Returns the exit code for a program that has saved its state because all ranks are to stop. It is 75 in general,
  // which asks horovodrun or the job script for another run of the job. It is 143 after SIGTERM, because the sender of
  // SIGTERM decides about another run. It is 0 if the program itself asked to stop, because then it is finished.
  int exit_code_of_stop() {
    hvd_stop_cause cause = HVD_STOP_PROGRAM;
    hvd_stop_reason(runtime_, &cause);
    if (cause == HVD_STOP_PROGRAM) return 0;
    return cause == HVD_STOP_TERMINATED ? 128 + 15 : 75;
  }

  // Prepared operations live as long as the runtime.
  template <typename T>
  Operation<T> allreduce_op(const std::string& name, std::size_t count, hvd_reduce_op op = HVD_AVERAGE) {
    return {runtime_, prepare<T>(name, HVD_ALLREDUCE, count, op, 0), count};
  }
  template <typename T>
  Operation<T> broadcast_op(const std::string& name, std::size_t count, int root_rank = 0) {
    return {runtime_, prepare<T>(name, HVD_BROADCAST, count, HVD_SUM, root_rank), count};
  }

  // Functions that start an operation and wait for it. Every rank calls them with the same name. An operation whose
  // name or size is used only once leaves nothing behind.
  template <typename T>
  void allreduce(const std::string& name, std::span<T> data, hvd_reduce_op op = HVD_AVERAGE) {
    OneUse use(runtime_, prepare<T>(name, HVD_ALLREDUCE, data.size(), op, 0));
    Operation<T>(runtime_, use.op, data.size()).start(data).wait();
  }
  template <typename T>
  void broadcast(const std::string& name, std::span<T> data, int root_rank = 0) {
    OneUse use(runtime_, prepare<T>(name, HVD_BROADCAST, data.size(), HVD_SUM, root_rank));
    Operation<T>(runtime_, use.op, data.size()).start(data).wait();
  }
  // Returns the elements of all ranks, in rank order. The number of elements may differ between ranks.
  template <typename T>
  std::vector<T> allgather(const std::string& name, std::span<const T> mine) {
    OneUse use(runtime_, prepare<T>(name, HVD_ALLGATHER, mine.size(), HVD_SUM, 0));
    hvd_start_arguments arguments = hvd_use_of(use.op, mine.data(), nullptr);
    arguments.first_dimension = static_cast<std::int64_t>(mine.size());
    hvd_handle raw = 0;
    check(hvd_start(runtime_, &arguments, 1, &raw));
    Handle handle(runtime_, raw);
    handle.wait();
    int dimensions = 0;
    std::int64_t shape[HVD_MAX_DIMENSIONS];
    check(hvd_result_shape(runtime_, raw, 0, &dimensions, shape));
    std::vector<T> all(static_cast<std::size_t>(shape[0]));
    check(hvd_result_copy(runtime_, raw, 0, all.data(), all.size() * sizeof(T)));
    return all;
  }
  void barrier(const std::string& name = "barrier") {
    hvd_op_description description{};
    description.struct_size = sizeof description;
    description.name = name.c_str();
    description.verb = HVD_BARRIER;
    hvd_op* op = nullptr;
    check(hvd_prepare(runtime_, &description, &op));
    OneUse use(runtime_, op);
    hvd_start_arguments arguments = hvd_use_of(op, nullptr, nullptr);
    hvd_handle handle = 0;
    check(hvd_start(runtime_, &arguments, 1, &handle));
    Handle(runtime_, handle).wait();
  }

 private:
  struct OneUse {
    OneUse(hvd_runtime* of, hvd_op* it) : runtime(of), op(it) {}
    OneUse(const OneUse&) = delete;
    OneUse& operator=(const OneUse&) = delete;
    ~OneUse() { hvd_op_release(runtime, op); }
    hvd_runtime* runtime;
    hvd_op* op;
  };
  template <typename T>
  hvd_op* prepare(const std::string& name, hvd_verb verb, std::size_t count, hvd_reduce_op reduce_op, int root_rank) {
    static_assert(dtype_of<T> >= 0, "Horovod communicates bool, integers of 8 to 64 bits, float and double");
    const auto extent = static_cast<std::int64_t>(count);
    hvd_op_description description{};
    description.struct_size = sizeof description;
    description.name = name.c_str();
    description.verb = verb;
    description.dtype = static_cast<hvd_dtype>(dtype_of<T>);
    description.dimensions = 1;
    description.shape = &extent;
    description.prescale = description.postscale = 1.0;
    description.reduce_op = reduce_op;
    description.root_rank = root_rank;
    hvd_op* op = nullptr;
    check(hvd_prepare(runtime_, &description, &op));
    return op;
  }

  hvd_runtime* runtime_ = nullptr;
  hvd_world world_{};
};

// A meeting that this process has opened for ranks which it starts, or has entered (hvd_meeting_open).
class Meeting {
 public:
  explicit Meeting(int size, const std::string& interfaces = {}) {
    hvd_meeting_options options{};
    options.struct_size = sizeof options;
    options.size = size;
    if (!interfaces.empty()) options.interfaces = interfaces.c_str();
    check(hvd_meeting_open(&options, &meeting_));
  }
  // A negative `timeout` is no limit.
  Meeting(const std::string& addresses, const std::string& port, const std::string& secret,
          std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
    check(hvd_meeting_enter(addresses.c_str(), port.c_str(), secret.c_str(), timeout.count(), &meeting_));
  }
  ~Meeting() { hvd_meeting_close(meeting_); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  // The environment variables of a rank, as pairs of name and value. One of them is a secret.
  std::vector<std::pair<std::string, std::string>> variables(int rank) const {
    std::vector<std::pair<std::string, std::string>> all;
    const auto add = [](void* context, const char* name, const char* value) {
      static_cast<decltype(all)*>(context)->emplace_back(name, value);
    };
    check(hvd_meeting_variables(meeting_, rank, add, &all));
    return all;
  }
  void rank_ended(int rank, const std::string& how) { check(hvd_meeting_rank_ended(meeting_, rank, how.c_str())); }
  void put(const std::string& key, const std::string& value) {
    check(hvd_meeting_put(meeting_, key.c_str(), value.data(), value.size()));
  }
  // Waits until the value is there. With `forget` it is not kept for others.
  std::string get(const std::string& key, bool forget = false) {
    std::size_t bytes = 0;
    check(hvd_meeting_wait(meeting_, key.c_str(), -1, &bytes));
    std::string value(bytes, '\0');
    check(hvd_meeting_get(meeting_, key.c_str(), value.data(), bytes, forget ? 1 : 0));
    return value;
  }
  hvd_meeting* get() const noexcept { return meeting_; }

 private:
  hvd_meeting* meeting_ = nullptr;
};

// ---- checkpoints: docs/checkpoints.md ----

// The content of a checkpoint: values and tensors under paths such as "/model/weights". The groups above an entry are
// made automatically. The memory of tensors is borrowed until the state has been saved.
class State {
 public:
  template <typename T>
  void add(const std::string& path, std::span<const T> tensor, std::vector<std::int64_t> shape = {},
           const std::string& unit = {}) {
    static_assert(element_name<T> != nullptr, "checkpoints hold bool, integers of 8 to 64 bits, float and double");
    Item& item = make(path, HVD_ENTRY_TENSOR);
    item.shape = std::move(shape);
    if (item.shape.empty()) item.shape.push_back(static_cast<std::int64_t>(tensor.size()));
    std::int64_t count = 1;
    for (std::int64_t extent : item.shape) count *= extent;
    if (count != static_cast<std::int64_t>(tensor.size()))
      throw std::invalid_argument(path + " has " + std::to_string(tensor.size()) + " elements, its shape " +
                                  std::to_string(count));
    item.unit = unit;
    item.entry.dtype = element_name<T>;
    item.entry.data = tensor.data();
  }
  template <typename T>
  void add(const std::string& path, const std::vector<T>& tensor, std::vector<std::int64_t> shape = {},
           const std::string& unit = {}) {
    add(path, std::span<const T>(tensor), std::move(shape), unit);
  }
  void add(const std::string& path, bool value) { make(path, HVD_ENTRY_BOOL).entry.integer = value ? 1 : 0; }
  void add(const std::string& path, std::int64_t value) { make(path, HVD_ENTRY_INTEGER).entry.integer = value; }
  void add(const std::string& path, int value) { add(path, static_cast<std::int64_t>(value)); }
  void add(const std::string& path, double value) { make(path, HVD_ENTRY_NUMBER).entry.number = value; }
  void add(const std::string& path, const char* value) { make(path, HVD_ENTRY_TEXT).text = value; }
  void add(const std::string& path, const std::string& value) { make(path, HVD_ENTRY_TEXT).text = value; }

  // The entries. They are valid until something is added to the state.
  std::vector<hvd_checkpoint_entry> entries() const {
    std::vector<hvd_checkpoint_entry> all;
    for (const Item& item : items_) {
      hvd_checkpoint_entry entry = item.entry;
      entry.path = item.path.c_str();
      entry.text = item.text.c_str();
      entry.dimensions = static_cast<int>(item.shape.size());
      entry.shape = item.shape.data();
      if (!item.unit.empty()) entry.unit = item.unit.c_str();
      all.push_back(entry);
    }
    return all;
  }

  template <typename T>
  static constexpr const char* element_name = nullptr;

 private:
  struct Item {
    std::string path, text, unit;
    std::vector<std::int64_t> shape;
    hvd_checkpoint_entry entry{};
  };
  Item& make(const std::string& path, hvd_entry_type type) {
    for (std::size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1))
      if (std::string group = path.substr(0, slash); groups_.insert(group).second) put(group, HVD_ENTRY_GROUP);
    return put(path, type);
  }
  Item& put(const std::string& path, hvd_entry_type type) {
    Item& item = items_.emplace_back();
    item.path = path;
    item.entry.struct_size = sizeof(hvd_checkpoint_entry);
    item.entry.type = type;
    return item;
  }
  std::vector<Item> items_;
  std::set<std::string> groups_;
};
template <>
inline constexpr const char* State::element_name<bool> = "bool";
template <>
inline constexpr const char* State::element_name<std::uint8_t> = "uint8";
template <>
inline constexpr const char* State::element_name<std::int8_t> = "int8";
template <>
inline constexpr const char* State::element_name<std::uint16_t> = "uint16";
template <>
inline constexpr const char* State::element_name<std::int16_t> = "int16";
template <>
inline constexpr const char* State::element_name<std::uint32_t> = "uint32";
template <>
inline constexpr const char* State::element_name<std::int32_t> = "int32";
template <>
inline constexpr const char* State::element_name<std::uint64_t> = "uint64";
template <>
inline constexpr const char* State::element_name<std::int64_t> = "int64";
template <>
inline constexpr const char* State::element_name<float> = "float32";
template <>
inline constexpr const char* State::element_name<double> = "float64";

// Collective: writes rank 0's state to the file. If `job` is null, this process does it alone.
inline void save(Runtime* job, const std::string& path, const State& state, std::int64_t step = -1,
                 const std::string& compression = {}) {
  std::vector<hvd_checkpoint_entry> entries = state.entries();
  hvd_checkpoint_options options{};
  options.struct_size = sizeof options;
  options.step = step;
  if (!compression.empty()) options.compression = compression.c_str();
  check(hvd_checkpoint_save(job == nullptr ? nullptr : job->get(), path.c_str(), entries.data(), entries.size(),
                            &options));
}

// A checkpoint that all ranks read together. If the path is a folder, the newest complete checkpoint in it.
class Checkpoint {
 public:
  Checkpoint(Runtime* job, const std::string& path) {
    check(hvd_checkpoint_open(job == nullptr ? nullptr : job->get(), path.c_str(), &opened_));
    info_.struct_size = sizeof info_;
    hvd_checkpoint_get_info(opened_, &info_);
  }
  ~Checkpoint() { hvd_checkpoint_close(opened_); }
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  std::int64_t step() const noexcept { return info_.step; }
  std::string path() const { return info_.path; }
  std::vector<hvd_checkpoint_entry> entries() const {
    std::vector<hvd_checkpoint_entry> all(info_.entries);
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].struct_size = sizeof all[i];
      check(hvd_checkpoint_get_entry(opened_, i, &all[i]));
    }
    return all;
  }
  // Reads a tensor into `into`, which must have the tensor's size.
  template <typename T>
  void read(const std::string& path, std::span<T> into) const {
    hvd_checkpoint_target target{sizeof(hvd_checkpoint_target), path.c_str(), into.data(), into.size_bytes()};
    check(hvd_checkpoint_read(opened_, &target, 1));
  }
  hvd_checkpoint* get() const noexcept { return opened_; }

 private:
  hvd_checkpoint* opened_ = nullptr;
  hvd_checkpoint_info info_{};
};

}  // namespace horovod
