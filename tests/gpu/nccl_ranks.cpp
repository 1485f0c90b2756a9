// Ranks whose tensors go from GPU to GPU over NCCL: `nccl_ranks` under a launcher. It knows the driver, NCCL and
// horovod.h only, as a program of a user, and runs on real GPUs and on the doubles (HOROVOD_CUDA_DRIVER,
// HOROVOD_NCCL_LIBRARY). Several ranks may be on one GPU: each tells NCCL that it is on a host of its own.
//
// With the argument `one` it reduces one tensor, for tests of what is missing or bad.
// Prints `ok NAME` or `failed NAME: why` for each check, and what it has measured. With the argument `loss`, the last
// rank ends without a word while a tensor is on its way, and the others tell what became of it.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "horovod.hpp"
#include "multiprocess/allreduce_of.hpp"
#include "native/cuda/driver.hpp"
#include "native/nccl/library.hpp"

namespace {

using hvd::cuda::Address;
using Clock = std::chrono::steady_clock;
using Doubles = std::vector<double>;

bool is_double() {
  return std::getenv("HOROVOD_CUDA_DRIVER") != nullptr;
}

// An entry point of a library by its name.
template <typename... Arguments>
int call_in(void* library, const char* name, Arguments... arguments) {
  if (library == nullptr) throw std::runtime_error(::dlerror());
  void* const found = ::dlsym(library, name);
  if (found == nullptr) throw std::runtime_error(std::string("there is no ") + name);
  return reinterpret_cast<int (*)(Arguments...)>(found)(arguments...);
}
template <typename... Arguments>
void driver(const char* name, Arguments... arguments) {
  static const char* const named = std::getenv("HOROVOD_CUDA_DRIVER");
  static void* const library = ::dlopen(named != nullptr ? named : "libcuda.so.1", RTLD_NOW);
  const int code = call_in(library, name, arguments...);
  if (code != 0) throw std::runtime_error(std::string(name) + " fails with " + std::to_string(code));
}

class Array {
 public:
  explicit Array(std::size_t bytes) { driver("cuMemAlloc_v2", &address_, std::max<std::size_t>(bytes, 16)); }
  ~Array() {
    try {
      driver("cuMemFree_v2", address_);
    } catch (const std::exception&) {  // the GPU has failed: its checks tell so
    }
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }

 private:
  Address address_ = 0;
};

// ---- numbers in the types

struct TypeRow {
  hvd_dtype dtype;
  const char* name;
  std::size_t bytes;
};
constexpr TypeRow types[] = {{HVD_FLOAT32, "float32", 4},   {HVD_FLOAT64, "float64", 8}, {HVD_FLOAT16, "float16", 2},
                             {HVD_BFLOAT16, "bfloat16", 2}, {HVD_INT32, "int32", 4},     {HVD_INT64, "int64", 8},
                             {HVD_UINT8, "uint8", 1},       {HVD_INT16, "int16", 2}};

// Small whole numbers and quarters, which all these types have.
void store(double value, hvd_dtype dtype, std::byte* to) {
  const auto put = [to](auto number) { std::memcpy(to, &number, sizeof number); };
  switch (dtype) {
    case HVD_FLOAT32: return put(static_cast<float>(value));
    case HVD_FLOAT64: return put(value);
    case HVD_INT32: return put(static_cast<std::int32_t>(value));
    case HVD_INT64: return put(static_cast<std::int64_t>(value));
    case HVD_UINT8: return put(static_cast<std::uint8_t>(value));
    case HVD_INT16: return put(static_cast<std::int16_t>(value));
    case HVD_BFLOAT16: {
      const auto single = static_cast<float>(value);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &single, sizeof bits);
      return put(static_cast<std::uint16_t>(bits >> 16));
    }
    default: {  // float16
      int exponent = 0;
      const double fraction = std::frexp(std::fabs(value), &exponent);
      std::uint32_t bits = value == 0 ? 0
                                      : static_cast<std::uint32_t>(exponent + 14) << 10 |
                                            (static_cast<std::uint32_t>(fraction * 2048) & 0x3ffu);
      if (value < 0) bits |= 0x8000u;
      return put(static_cast<std::uint16_t>(bits));
    }
  }
}
double load(const std::byte* from, hvd_dtype dtype) {
  const auto take = [from](auto number) {
    std::memcpy(&number, from, sizeof number);
    return number;
  };
  switch (dtype) {
    case HVD_FLOAT32: return static_cast<double>(take(float{}));
    case HVD_FLOAT64: return take(double{});
    case HVD_INT32: return take(std::int32_t{});
    case HVD_INT64: return static_cast<double>(take(std::int64_t{}));
    case HVD_UINT8: return take(std::uint8_t{});
    case HVD_INT16: return take(std::int16_t{});
    case HVD_BFLOAT16: {
      const std::uint32_t bits = static_cast<std::uint32_t>(take(std::uint16_t{})) << 16;
      float single = 0;
      std::memcpy(&single, &bits, sizeof single);
      return static_cast<double>(single);
    }
    default: {
      const std::uint32_t bits = take(std::uint16_t{});
      const int exponent = static_cast<int>(bits >> 10 & 31u);
      const double fraction = static_cast<double>(bits & 0x3ffu) / 1024;
      const double size = exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
      return (bits & 0x8000u) != 0 ? -size : size;
    }
  }
}

// ---- the program

class Program {
 public:
  Program() {
    driver("cuInit", 0u);
    hvd::cuda::ContextHandle context = nullptr;
    int devices = 1;
    driver("cuDeviceGetCount", &devices);
    const char* local = std::getenv("HOROVOD_LOCAL_RANK");
    ordinal_ = (local != nullptr ? std::atoi(local) : job_.rank()) % devices;
    driver("cuDevicePrimaryCtxRetain", &context, ordinal_);
    driver("cuCtxSetCurrent", context);
    driver("cuStreamCreate", &stream_, hvd::cuda::stream_non_blocking);
  }

  int rank() const { return job_.rank(); }
  int size() const { return job_.size(); }

  void check(const std::string& name, const std::function<void()>& body) {
    try {
      body();
      if (rank() == 0) std::printf("ok %s\n", name.c_str());
    } catch (const std::exception& failure) {
      std::printf("failed %s: rank %d: %s\n", name.c_str(), rank(), failure.what());
      has_failed_ = true;
    }
    std::fflush(stdout);
  }
  bool has_failed() const { return has_failed_; }

  void run_one() {
    check("allreduce_after_another_start", [&] { reduce(types[0], 1000); });
  }
  void run_verbs() {
    for (const TypeRow& type : types)
      check(std::string("allreduce_of_") + type.name, [&] {
        for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{100'003}}) reduce(type, count);
      });
    check("allreduce_min_max_product", [&] {
      for (const hvd_reduce_op op : {HVD_MIN, HVD_MAX, HVD_PRODUCT}) reduce(types[0], 5000, op);
    });
    check("allreduce_with_scales", [&] { reduce(types[0], 5000, HVD_SUM, 0.5, 4.0); });
    check("average", [&] { reduce(types[2], 5000, HVD_AVERAGE); });
    check("many_tensors", [&] { reduce_many(300, 1001); });
    check("many_tensors_larger_than_the_buffer", [&] { reduce_many(40, is_double() ? 30'000 : 700'000); });
    check("broadcast", [&] {
      for (int root = 0; root < size(); ++root) broadcast(root);
    });
    check("allgather", [&] { gather(true); });
    check("allgather_of_equal_parts", [&] { gather(false); });
    check("reducescatter", [&] {
      scatter(static_cast<std::int64_t>(size()) * 500);
      scatter(static_cast<std::int64_t>(size()) * 500 + 1);
    });
    check("alltoall", [&] { exchange(); });
    check("adasum_is_the_mean_in_a_node", [&] { combine(); });
    check("process_sets_at_the_same_time", [&] { reduce_in_sets(); });
    check("a_rank_that_has_joined", [&] { join(); });
  }

  void measure();
  void lose();

 private:
  // ---- memory
  void upload(const Doubles& values, hvd_dtype dtype, std::size_t bytes, std::byte* to) {
    std::vector<std::byte> raw(values.size() * bytes);
    for (std::size_t i = 0; i < values.size(); ++i) store(values[i], dtype, raw.data() + i * bytes);
    driver("cuMemcpyHtoDAsync_v2", reinterpret_cast<Address>(to), static_cast<const void*>(raw.data()), raw.size(),
           stream_);
    driver("cuStreamSynchronize", stream_);
  }
  Doubles read(const void* from, std::size_t count, hvd_dtype dtype, std::size_t bytes) {
    std::vector<std::byte> raw(count * bytes);
    driver("cuMemcpyDtoHAsync_v2", static_cast<void*>(raw.data()), reinterpret_cast<Address>(from), raw.size(),
           stream_);
    driver("cuStreamSynchronize", stream_);
    Doubles values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = load(raw.data() + i * bytes, dtype);
    return values;
  }
  static double number(std::size_t element, int of_rank) {
    return static_cast<double>((element * 7 + static_cast<std::size_t>(of_rank) * 3) % 5 + 1);
  }
  static Doubles numbers(std::size_t count, int of_rank, std::size_t first = 0) {
    Doubles values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = number(first + i, of_rank);
    return values;
  }
  static void expect(const Doubles& found, const Doubles& expected) {
    for (std::size_t i = 0; i < expected.size(); ++i)
      if (!(found[i] == expected[i]))
        throw std::runtime_error("element " + std::to_string(i) + " of " + std::to_string(expected.size()) + " is " +
                                 std::to_string(found[i]) + ", not " + std::to_string(expected[i]));
  }

  // ---- operations
  hvd_op_description describe(const std::string& name, hvd_verb verb, hvd_dtype dtype, const std::int64_t& count) {
    const char* const kept = names_.insert(name).first->c_str();
    hvd_op_description description = hvd::testing::allreduce_of(kept, count, dtype, HVD_SUM);
    description.verb = verb;
    description.device = HVD_CUDA;
    description.device_ordinal = ordinal_;
    return description;
  }
  hvd_start_arguments prepare(const hvd_op_description& description, const void* in, void* out) {
    hvd_op* op = nullptr;
    horovod::check(hvd_prepare(job_.get(), &description, &op));
    hvd_start_arguments arguments = hvd_use_of(op, in, out);
    arguments.first_dimension = description.shape[0];
    arguments.stream = stream_;
    return arguments;
  }
  horovod::Handle start(const std::vector<hvd_start_arguments>& uses) {
    hvd_handle handle = 0;
    horovod::check(hvd_start(job_.get(), uses.data(), uses.size(), &handle));
    return {job_.get(), handle};
  }
  // The result that the runtime keeps.
  Doubles result_of(const horovod::Handle& handle, std::size_t count, const TypeRow& type) {
    void *data = nullptr, *owner = nullptr;
    void (*free_data)(void*) = nullptr;
    hvd_device kind = HVD_HOST;
    horovod::check(hvd_result_take(job_.get(), handle.get(), 0, &data, &owner, &free_data, &kind));
    Doubles values = read(data, count, type.dtype, type.bytes);
    free_data(owner);
    return values;
  }

  double reduced(std::size_t element, hvd_reduce_op op) const {
    double value = number(element, 0);
    for (int other = 1; other < size(); ++other) {
      const double next = number(element, other);
      value = op == HVD_MIN       ? std::min(value, next)
              : op == HVD_MAX     ? std::max(value, next)
              : op == HVD_PRODUCT ? value * next
                                  : value + next;
    }
    return value;
  }
  void reduce(const TypeRow& type, std::size_t count, hvd_reduce_op op = HVD_SUM, double prescale = 1.0,
              double postscale = 1.0) {
    const auto elements = static_cast<std::int64_t>(count);
    const std::string name = std::string("reduce ") + type.name + " " + std::to_string(count) + " " +
                             std::to_string(op) + " " + std::to_string(prescale);
    hvd_op_description description = describe(name, HVD_ALLREDUCE, type.dtype, elements);
    description.reduce_op = op;
    description.prescale = prescale;
    description.postscale = postscale;
    Doubles mine = numbers(count, rank()), expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      expected[i] = reduced(i, op) * prescale * postscale;
      if (op != HVD_AVERAGE) continue;
      mine[i] *= size();  // so that the average has no fraction
    }
    if (op == HVD_PRODUCT && type.dtype != HVD_FLOAT32) return;
    const Array in(count * type.bytes), out(count * type.bytes);
    upload(mine, type.dtype, type.bytes, in.data());
    const hvd_start_arguments apart = prepare(description, in.data(), out.data());
    start({apart}).wait();
    expect(read(out.data(), count, type.dtype, type.bytes), expected);
    start({prepare(description, in.data(), in.data())}).wait();
    expect(read(in.data(), count, type.dtype, type.bytes), expected);
  }
  void reduce_many(std::size_t tensors, std::size_t most) {
    std::size_t all = 0;
    std::vector<std::size_t> counts;
    for (std::size_t i = 0; i < tensors; ++i) all += counts.emplace_back(most - i % 7);
    const Array array(all * 4);
    upload(numbers(all, rank()), HVD_FLOAT32, 4, array.data());
    Doubles expected(all);
    for (std::size_t i = 0; i < all; ++i) expected[i] = reduced(i, HVD_SUM);
    std::vector<std::int64_t> shapes(counts.begin(), counts.end());
    std::vector<hvd_start_arguments> uses;
    std::byte* next = array.data();
    for (std::size_t i = 0; i < tensors; ++i) {
      uses.push_back(prepare(
          describe("many " + std::to_string(most) + " " + std::to_string(i), HVD_ALLREDUCE, HVD_FLOAT32, shapes[i]),
          next, next));
      next += counts[i] * 4;
    }
    start(uses).wait();
    expect(read(array.data(), all, HVD_FLOAT32, 4), expected);
  }
  void broadcast(int root) {
    const std::int64_t count = 10'001;
    hvd_op_description description = describe("broadcast " + std::to_string(root), HVD_BROADCAST, HVD_INT16, count);
    description.root_rank = root;
    const Array array(20'002);
    upload(numbers(10'001, rank()), HVD_INT16, 2, array.data());
    start({prepare(description, array.data(), array.data())}).wait();
    expect(read(array.data(), 10'001, HVD_INT16, 2), numbers(10'001, root));
  }
  void gather(bool is_uneven) {
    const auto rows_of = [&](int of_rank) { return std::size_t{3000} + (is_uneven ? 17u * unsigned(of_rank) : 0u); };
    Doubles expected;
    for (int other = 0; other < size(); ++other)
      for (const double value : numbers(rows_of(other), other)) expected.push_back(value);
    const auto rows = static_cast<std::int64_t>(rows_of(rank()));
    const Array in(rows_of(rank()) * 4);
    upload(numbers(rows_of(rank()), rank()), HVD_FLOAT32, 4, in.data());
    const std::string name = is_uneven ? "gather" : "gather equal";
    const horovod::Handle handle =
        start({prepare(describe(name, HVD_ALLGATHER, HVD_FLOAT32, rows), in.data(), nullptr)});
    handle.wait();
    expect(result_of(handle, expected.size(), types[0]), expected);
  }
  void scatter(std::int64_t count) {
    const auto elements = static_cast<std::size_t>(count);
    const Array in(elements * 4);
    upload(numbers(elements, rank()), HVD_FLOAT32, 4, in.data());
    const horovod::Handle handle = start({prepare(
        describe("scatter " + std::to_string(count), HVD_REDUCESCATTER, HVD_FLOAT32, count), in.data(), nullptr)});
    handle.wait();
    const std::int64_t each = count / size(), more = count % size();
    const std::int64_t first = each * rank() + std::min<std::int64_t>(rank(), more);
    Doubles expected(static_cast<std::size_t>(each + (rank() < more ? 1 : 0)));
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] = reduced(static_cast<std::size_t>(first) + i, HVD_SUM);
    expect(result_of(handle, expected.size(), types[0]), expected);
  }
  void exchange() {
    const std::size_t each = 250;
    const auto count = static_cast<std::int64_t>(each) * size();
    const Array in(static_cast<std::size_t>(count) * 4);
    upload(numbers(static_cast<std::size_t>(count), rank()), HVD_FLOAT32, 4, in.data());
    const horovod::Handle handle =
        start({prepare(describe("exchange", HVD_ALLTOALL, HVD_FLOAT32, count), in.data(), nullptr)});
    handle.wait();
    Doubles expected;
    const std::size_t mine = each * static_cast<std::size_t>(rank());
    for (int other = 0; other < size(); ++other)
      for (const double value : numbers(each, other, mine)) expected.push_back(value);
    expect(result_of(handle, expected.size(), types[0]), expected);
  }

  void combine() {
    hvd_world world{};
    world.struct_size = sizeof world;
    horovod::check(hvd_get_world(job_.get(), &world));
    constexpr std::int64_t count = 1000;
    const Array array(count * 4);
    upload(numbers(count, rank()), HVD_FLOAT32, 4, array.data());
    hvd_op_description description = describe("adasum", HVD_ALLREDUCE, HVD_FLOAT32, count);
    description.reduce_op = HVD_ADASUM;
    start({prepare(description, array.data(), array.data())}).wait();
    const Doubles found = read(array.data(), count, HVD_FLOAT32, 4);
    for (std::size_t i = 0; i < found.size() && world.cross_size == 1; ++i)
      if (std::fabs(found[i] - reduced(i, HVD_SUM) / size()) > 1e-5)
        throw std::runtime_error("element " + std::to_string(i) + " is " + std::to_string(found[i]));
  }
  // Each rank is in two or three sets, with a communicator for each: the ranks from k on, for each k.
  void reduce_in_sets() {
    constexpr std::int64_t count = 2000;
    struct OneSet {
      int id;
      std::vector<int> ranks;
      std::unique_ptr<Array> array;
    };
    std::vector<OneSet> sets;
    for (int first = 0; first + 1 < size(); ++first) {
      OneSet set{0, {}, nullptr};
      for (int member = first; member < size(); ++member) set.ranks.push_back(member);
      if (first == 0) set.ranks.pop_back();
      if (set.ranks.size() < 2) continue;
      horovod::check(hvd_add_process_set(job_.get(), set.ranks.data(), set.ranks.size(), &set.id));
      if (std::ranges::find(set.ranks, rank()) == set.ranks.end()) continue;
      set.array = std::make_unique<Array>(count * 4);
      sets.push_back(std::move(set));
    }
    for (int round = 0; round < 3; ++round) {
      std::vector<horovod::Handle> handles;
      for (const OneSet& set : sets) {
        upload(numbers(count, rank(), static_cast<std::size_t>(set.id)), HVD_FLOAT32, 4, set.array->data());
        hvd_op_description description =
            describe("in set " + std::to_string(set.id), HVD_ALLREDUCE, HVD_FLOAT32, count);
        description.process_set = set.id;
        handles.push_back(start({prepare(description, set.array->data(), set.array->data())}));
      }
      for (const horovod::Handle& handle : handles) handle.wait();
      for (const OneSet& set : sets) {
        Doubles expected(count);
        for (std::size_t i = 0; i < expected.size(); ++i)
          for (const int member : set.ranks) expected[i] += number(i + static_cast<std::size_t>(set.id), member);
        expect(read(set.array->data(), count, HVD_FLOAT32, 4), expected);
      }
    }
  }
  // Zeros take the place of the last rank's tensors.
  void join() {
    constexpr std::int64_t count = 3000;
    hvd_op_description last{};
    last.struct_size = sizeof last;
    last.name = "join";
    last.verb = HVD_JOIN;
    last.prescale = last.postscale = 1.0;
    const Array array(count * 4);
    if (rank() + 1 < size()) {
      upload(numbers(count, rank()), HVD_FLOAT32, 4, array.data());
      start({prepare(describe("while one has joined", HVD_ALLREDUCE, HVD_FLOAT32, count), array.data(), array.data())})
          .wait();
      Doubles expected(count);
      for (std::size_t i = 0; i < expected.size(); ++i)
        for (int other = 0; other + 1 < size(); ++other) expected[i] += number(i, other);
      expect(read(array.data(), count, HVD_FLOAT32, 4), expected);
    }
    hvd_op* op = nullptr;
    horovod::check(hvd_prepare(job_.get(), &last, &op));
    start({hvd_use_of(op, nullptr, nullptr)}).wait();
  }

  double time_of_ours(std::size_t bytes, int times, double& host);
  double time_of_bare(std::size_t bytes, int times, bool is_blocking, double& host);

  horovod::Runtime job_;
  int ordinal_ = 0;
  hvd::cuda::StreamHandle stream_ = nullptr;
  bool has_failed_ = false;
  std::set<std::string> names_;
};

// ---- measurements: microseconds for one operation

double micros(Clock::time_point from) {
  return std::chrono::duration<double, std::micro>(Clock::now() - from).count();
}

double Program::time_of_ours(std::size_t bytes, int times, double& host) {
  const Array array(bytes);
  upload({}, HVD_FLOAT32, 4, array.data());
  const auto count = static_cast<std::int64_t>(bytes / 4);
  const hvd_start_arguments use =
      prepare(describe("time " + std::to_string(bytes), HVD_ALLREDUCE, HVD_FLOAT32, count), array.data(), array.data());
  double all = 0;
  for (int round = 0; round < 2; ++round) {  // the first is not counted
    const auto begin = Clock::now();
    double in_start = 0;
    for (int i = 0; i < times; ++i) {
      const auto called = Clock::now();
      const horovod::Handle handle = start({use});
      in_start += micros(called);
      handle.wait();
    }
    driver("cuStreamSynchronize", stream_);
    all = micros(begin) / times;
    host = in_start / times;
  }
  return all;
}

// The same with a communicator of its own, as a program that knows NCCL would do it.
double Program::time_of_bare(std::size_t bytes, int times, bool is_blocking, double& host) {
  using namespace hvd::nccl;
  auto library = open_library(hvd::Environment::of_this_process());
  if (!library) throw std::runtime_error(library.error().message);
  const Library& nccl = **library;
  const auto must = [&](Code code, const char* what) {
    if (code != Code::success && code != Code::in_progress) throw std::runtime_error(std::string("bare NCCL: ") + what);
  };
  UniqueId id{};
  if (rank() == 0) must(nccl.get_unique_id(&id), "the id");
  std::vector<std::int32_t> words(sizeof id / 4);
  std::memcpy(words.data(), id.bytes, sizeof id);
  static int number_of_call = 0;
  const std::int64_t count = sizeof id / 4;
  const std::string name = "id " + std::to_string(number_of_call++);
  hvd_op_description description = describe(name, HVD_BROADCAST, HVD_INT32, count);
  description.device = HVD_HOST;
  hvd_op* op = nullptr;
  horovod::check(hvd_prepare(job_.get(), &description, &op));
  hvd_start_arguments arguments = hvd_use_of(op, words.data(), words.data());
  arguments.first_dimension = count;
  start({arguments}).wait();
  std::memcpy(id.bytes, words.data(), sizeof id);

  CommunicatorConfig config;
  config.blocking = is_blocking ? 1 : 0;
  CommunicatorHandle communicator = nullptr;
  must(nccl.init(&communicator, size(), id, rank(), &config), "the start");
  const auto finish = [&] {
    for (Code state = Code::in_progress; state == Code::in_progress;) must(nccl.async_error(communicator, &state), "");
  };
  finish();
  const Array array(bytes);
  double all = 0;
  for (int round = 0; round < 2; ++round) {
    const auto begin = Clock::now();
    double in_call = 0;
    for (int i = 0; i < times; ++i) {
      const auto called = Clock::now();
      must(nccl.allreduce(array.data(), array.data(), bytes / 4, Type::f32, Operation::sum, communicator, stream_), "");
      finish();
      in_call += micros(called);
    }
    driver("cuStreamSynchronize", stream_);
    all = micros(begin) / times;
    host = in_call / times;
  }
  must(nccl.destroy(communicator), "the end");
  return all;
}

void Program::measure() {
  check("measured", [&] {
    for (const std::size_t bytes : {std::size_t{4096}, std::size_t{1} << 20, std::size_t{64} << 20}) {
      if (is_double() && bytes > 4096) continue;
      const int times = is_double() ? 3 : bytes > 1 << 20 ? 5 : bytes > 4096 ? 20 : 50;  // GPUs may be shared
      double ours_host = 0, blocking_host = 0, bare_host = 0;
      const double ours = time_of_ours(bytes, times, ours_host);
      const double blocking = time_of_bare(bytes, times, true, blocking_host);
      const double bare = time_of_bare(bytes, times, false, bare_host);
      if (rank() == 0)
        std::printf(
            "measured allreduce_of_%zu_bytes: ours %.1f us (caller's host %.1f), bare NCCL blocking %.1f "
            "(host %.1f), non-blocking %.1f (host %.1f)\n",
            bytes, ours, ours_host, blocking, blocking_host, bare, bare_host);
    }
  });
}

// The last rank is lost while the tensor is on its way: the others get an error by name, and NaN.
void Program::lose() {
  const std::size_t count = 1 << 20;
  const Array array(count * 4);
  upload(numbers(count, rank()), HVD_FLOAT32, 4, array.data());
  const std::int64_t elements = count;
  const hvd_start_arguments use =
      prepare(describe("lost", HVD_ALLREDUCE, HVD_FLOAT32, elements), array.data(), array.data());
  start({use}).wait();
  driver("cuStreamSynchronize", stream_);
  static_cast<void>(std::signal(SIGTERM, SIG_IGN));  // of the launcher, which knows of the loss first
  if (rank() == size() - 1) {                        // its part is agreed, and never begins
    driver(
        "cuLaunchHostFunc", stream_, +[](void*) { ::sleep(100); }, static_cast<void*>(nullptr));
    start({use}).wait();
    ::sleep(1);
    ::_exit(9);
  }
  check("loss_is_named", [&] {
    const auto begin = Clock::now();
    try {
      start({use}).wait();
      driver("cuStreamSynchronize", stream_);
      std::printf("rank %d: the stream has gone on after %.1f s\n", rank(), micros(begin) / 1e6);
      start({use}).wait();
    } catch (const horovod::Failure& failure) {
      std::printf("rank %d after %.1f s: %s\n", rank(), micros(begin) / 1e6, failure.what());
      const Doubles left = read(array.data(), count, HVD_FLOAT32, 4);
      if (std::ranges::all_of(left, [](double value) { return std::isnan(value); })) return;
      throw std::runtime_error("the result is no NaN: it begins with " + std::to_string(left[0]));
    }
    throw std::runtime_error("nobody has told of the loss");
  });
}

}  // namespace

int main(int count, char** arguments) {
  const std::string host = "rank of process " + std::to_string(::getpid());
  ::setenv("NCCL_HOSTID", host.c_str(), 0);
  ::setenv("HOROVOD_NCCL", "1", 0);  // an empty one is kept, too
  ::setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1", 0);
  try {
    bool has_failed = false;
    for (int round = 0; round < 2; ++round) {  // the second start finds everything as the first one did
      Program program;
      if (count > 1 && std::string(arguments[1]) == "loss") {
        program.lose();
        return program.has_failed() ? 1 : 0;
      }
      if (count > 1 && std::string(arguments[1]) == "one") {
        program.run_one();
        return program.has_failed() ? 1 : 0;
      }
      if (round == 0 || !is_double()) program.run_verbs();
      else program.run_one();
      if (round == 0) program.measure();
      has_failed = has_failed || program.has_failed();
    }
    return has_failed ? 1 : 0;
  } catch (const std::exception& failure) {
    std::printf("failed start: %s\n", failure.what());
    return 1;
  }
}
