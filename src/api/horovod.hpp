// Horovod for C++ programs: horovod.h with owners, spans and exceptions. Header only; link with libhorovod.
//
//   horovod::Runtime job;                                    // joins the job that this process was launched into
//   auto gradients = job.allreduce_op<float>("gradients", n, HVD_AVERAGE);   // prepared once …
//   for (…) { auto handle = gradients.start(data); …; handle.wait(); }       // … used every step
#pragma once

#if __cplusplus < 202002L
#error "horovod.hpp needs C++20: compile with -std=c++20 or later (C programs and older C++ include horovod.h)"
#endif

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "horovod.h"

namespace horovod {

// The exception for every answer of the C interface but HVD_OK.
class Failure : public std::runtime_error {
 public:
  explicit Failure(hvd_status status) : std::runtime_error(hvd_last_error()), status_(status) {}
  hvd_status status() const noexcept { return status_; }

 private:
  hvd_status status_;
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

// Something under way. Destroying it without waiting is allowed; the memory must then stay until the operation is done.
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

  // In place. The memory is borrowed until the handle is done.
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

// This process's part of the job. One at a time per process.
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

  // Prepared operations live as long as the runtime.
  template <typename T>
  Operation<T> allreduce_op(const std::string& name, std::size_t count, hvd_reduce_op op = HVD_AVERAGE) {
    return {runtime_, prepare<T>(name, HVD_ALLREDUCE, count, op, 0), count};
  }
  template <typename T>
  Operation<T> broadcast_op(const std::string& name, std::size_t count, int root_rank = 0) {
    return {runtime_, prepare<T>(name, HVD_BROADCAST, count, HVD_SUM, root_rank), count};
  }

  // Blocking forms. Every rank calls them with the same name. Nothing is kept of a name or size that does not come
  // again.
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
  // The elements of all ranks, by rank; each rank may give another number of elements.
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

}  // namespace horovod
