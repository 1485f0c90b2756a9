// A rank whose tensors are on a GPU: `device_rank` under a launcher. It knows the driver and horovod.h only, as a
// program of a user, and runs on real GPUs and on the double of the driver (HOROVOD_CUDA_DRIVER names it). Tensors come
// late, on a stream of the program, and are freed while their operation is under way.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "allreduce_of.hpp"
#include "horovod.hpp"
#include "native/cuda/driver.hpp"

namespace {

using hvd::cuda::Address;
using hvd::cuda::Code;
using Floats = std::vector<float>;

void check(Code code, const char* what) {
  if (code != Code::success) throw std::runtime_error(std::string(what) + " fails with " + std::to_string(int(code)));
}

// An entry point of the driver by its name.
template <typename... Arguments>
void call(const char* name, Arguments... arguments) {
  static const char* const named = std::getenv("HOROVOD_CUDA_DRIVER");
  static void* const driver = ::dlopen(named != nullptr ? named : "libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) throw std::runtime_error(::dlerror());
  check(reinterpret_cast<Code (*)(Arguments...)>(::dlsym(driver, name))(arguments...), name);
}

// Memory of the GPU, which is freed when the driver finds no work on it any more.
class Array {
 public:
  explicit Array(std::size_t count) { call("cuMemAlloc_v2", &address_, (count + 1) * sizeof(float)); }
  ~Array() { call("cuMemFree_v2", address_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  void* data() const { return reinterpret_cast<void*>(address_); }

 private:
  Address address_ = 0;
};

class Program {
 public:
  explicit Program(int ordinal) : ordinal_(ordinal) {
    hvd::cuda::ContextHandle context = nullptr;
    call("cuDevicePrimaryCtxRetain", &context, ordinal);
    call("cuCtxSetCurrent", context);
    call("cuStreamCreateWithPriority", &stream_, hvd::cuda::stream_non_blocking, 0);
  }

  int rank() const { return job_.rank(); }

  void run() {
    for (int round = 0; round < 2; ++round) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{30'000}}) sum(count, round);
      many_sums(round);
      average_of_halves(round);
      gather(round);
      broadcast(round);
    }
  }

 private:
  void upload(const Floats& values, const Array& to) {
    if (!values.empty())
      call("cuMemcpyHtoDAsync_v2", reinterpret_cast<Address>(to.data()), static_cast<const void*>(values.data()),
           values.size() * sizeof(float), stream_);
  }
  Floats read(const void* from, std::size_t count) {
    Floats values(count);
    if (count > 0)
      call("cuMemcpyDtoHAsync_v2", static_cast<void*>(values.data()), reinterpret_cast<Address>(from),
           count * sizeof(float), stream_);
    call("cuStreamSynchronize", stream_);
    return values;
  }
  void expect(bool is_right, const std::string& what) const {
    if (!is_right) throw std::runtime_error("wrong numbers in " + what);
  }

  hvd_start_arguments prepare(const std::string& name, hvd_verb verb, hvd_dtype dtype, std::int64_t count,
                              const void* in, void* out) {
    hvd_op_description description = hvd::testing::allreduce_of(name.c_str(), count, dtype, HVD_SUM);
    description.verb = verb;
    if (dtype == HVD_FLOAT16) description.reduce_op = HVD_AVERAGE;
    description.device = HVD_CUDA;
    description.device_ordinal = ordinal_;
    hvd_op* op = nullptr;
    horovod::check(hvd_prepare(job_.get(), &description, &op));
    hvd_start_arguments arguments = hvd_use_of(op, in, out);
    arguments.first_dimension = count;
    arguments.stream = stream_;
    return arguments;
  }
  horovod::Handle start(const std::vector<hvd_start_arguments>& uses) {
    hvd_handle handle = 0;
    horovod::check(hvd_start(job_.get(), uses.data(), uses.size(), &handle));
    return {job_.get(), handle};
  }
  Floats numbers(std::size_t count, int round, int rank) const {
    Floats values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = static_cast<float>((rank + 1) * static_cast<int>(i % 13) + round);
    return values;
  }
  Floats sum_of_all(std::size_t count, int round) const {
    Floats sum(count);
    for (int rank = 0; rank < job_.size(); ++rank) {
      const Floats of_rank = numbers(count, round, rank);
      for (std::size_t i = 0; i < count; ++i) sum[i] += of_rank[i];
    }
    return sum;
  }

  void sum(std::size_t count, int round) {
    const Array out(count);
    {
      const Array in(count);
      upload(numbers(count, round, rank()), in);
      start({prepare("sum" + std::to_string(count), HVD_ALLREDUCE, HVD_FLOAT32, static_cast<std::int64_t>(count),
                     in.data(), out.data())})
          .wait();
    }
    expect(read(out.data(), count) == sum_of_all(count, round), "a sum of " + std::to_string(count));
  }

  // So many that one launch moves them all. They are reduced in place, in one piece of memory.
  void many_sums(int round) {
    constexpr std::size_t tensors = 200, count = 37;
    const Array array(tensors * count);
    upload(numbers(tensors * count, round, rank()), array);
    std::vector<hvd_start_arguments> uses;
    for (std::size_t i = 0; i < tensors; ++i) {
      float* const data = static_cast<float*>(array.data()) + i * count;
      uses.push_back(prepare("one of many " + std::to_string(i), HVD_ALLREDUCE, HVD_FLOAT32, count, data, data));
    }
    start(uses).wait();
    expect(read(array.data(), tensors * count) == sum_of_all(tensors * count, round), "many sums");
  }

  // A scale, which the kernels multiply with. Two halves are in the place of each float: 1.0 and 1.0, then 2.0 and 2.0.
  void average_of_halves(int round) {
    constexpr std::size_t count = 5000;
    const std::uint32_t bits = round == 0 ? 0x3C003C00u : 0x40004000u;
    float pair = 0;
    std::memcpy(&pair, &bits, sizeof pair);
    const Array array(count);
    upload(Floats(count, pair), array);
    start({prepare("halves", HVD_ALLREDUCE, HVD_FLOAT16, 2 * count, array.data(), array.data())}).wait();
    const Floats found = read(array.data(), count);
    expect(std::memcmp(found.data(), Floats(count, pair).data(), count * sizeof pair) == 0, "an average of halves");
  }

  // The runtime keeps the result.
  void gather(int round) {
    Floats expected;
    for (int rank = 0; rank < job_.size(); ++rank)
      expected.insert(expected.end(), static_cast<std::size_t>(rank + 1), static_cast<float>(10 * round + rank));
    const auto rows = static_cast<std::size_t>(rank() + 1);
    const Array in(rows);
    upload(Floats(rows, static_cast<float>(10 * round + rank())), in);
    const horovod::Handle handle =
        start({prepare("gather", HVD_ALLGATHER, HVD_FLOAT32, static_cast<std::int64_t>(rows), in.data(), nullptr)});
    handle.wait();
    void *data = nullptr, *owner = nullptr;
    void (*free_data)(void*) = nullptr;
    hvd_device kind = HVD_HOST;
    horovod::check(hvd_result_take(job_.get(), handle.get(), 0, &data, &owner, &free_data, &kind));
    expect(kind == HVD_CUDA && read(data, expected.size()) == expected, "a gather");
    free_data(owner);
  }

  void broadcast(int round) {
    constexpr std::size_t count = 1000;
    const Array array(count);
    upload(numbers(count, round, rank()), array);
    start({prepare("broadcast", HVD_BROADCAST, HVD_FLOAT32, count, array.data(), array.data())}).wait();
    expect(read(array.data(), count) == numbers(count, round, 0), "a broadcast");
  }

  horovod::Runtime job_;
  const int ordinal_;
  hvd::cuda::StreamHandle stream_ = nullptr;
};

}  // namespace

int main() {
  try {
    call("cuInit", 0u);
    Program program(0);
    program.run();
    return 0;
  } catch (const std::exception& failure) {
    std::printf("failed: %s\n", failure.what());
    return 1;
  }
}
