// Measures what a GPU and the host spend on Device::move: bandwidth of packing many tensors into one buffer and back,
// beside one copy of the same bytes in the same run, and the host's time for a call.
//
//   build/release/bin/hvd_gpu_move [MEGABYTES]     memory that the buffers may take; 12288 if it is not given
//
// Buffers are used in turn, more of them than the second-level cache holds. A row is the median of several rounds; a
// round queues some calls back to back and waits for the last.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "devices/cuda/gpu.hpp"

namespace {

using namespace hvd;
using namespace hvd::devices;
using Clock = std::chrono::steady_clock;

constexpr int rounds = 9;
constexpr std::size_t more_than_caches = std::size_t{512} << 20;

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

struct Bench {
  std::unique_ptr<Device> gpu;
  std::shared_ptr<void> own;
  Memory from, to;
  std::size_t room;  // bytes of each
  double copy_rate = 0;

  Stream stream() const { return {own.get()}; }

  // Sizes that differ, as gradients' do, and add up to `bytes`; all but every 16th are a multiple of 64 elements. Each
  // tensor begins at a multiple of 512 bytes plus `misalignment`, while the buffer has them one after the other, at
  // multiples of 16 bytes.
  struct List {
    std::vector<Move> moves;
    std::size_t end_of_tensors, bytes;
  };
  List list_of(std::size_t tensors, std::size_t bytes, std::size_t element, std::size_t element_to,
               std::size_t misalignment) const {
    std::mt19937_64 random(tensors);
    std::vector<double> weights(tensors);
    double sum = 0;
    for (double& weight : weights) sum += weight = 0.05 + static_cast<double>(random() % 1000) / 500;
    List list{{}, 0, 0};
    std::size_t packed = 0;
    for (double weight : weights) {
      auto count = static_cast<std::int64_t>(weight / sum * static_cast<double>(bytes) / static_cast<double>(element));
      if (list.moves.size() % 16 != 15) count = (count + 63) / 64 * 64;
      packed = (packed + 15) / 16 * 16;
      list.moves.push_back({from.data() + list.end_of_tensors + misalignment, to.data() + packed, count});
      const std::size_t size = static_cast<std::size_t>(count) * element;
      list.end_of_tensors = (list.end_of_tensors + misalignment + size + 511) / 512 * 512;
      packed += static_cast<std::size_t>(count) * element_to;
      list.bytes += size;
    }
    return list;
  }

  // Seconds for one call of `queue(place)`, where `place` is another part of the memory each time.
  template <typename Queue>
  double seconds_of(std::size_t bytes, Queue queue) {
    const std::size_t places = std::max<std::size_t>(1, std::min(room / bytes, 1 + more_than_caches / bytes));
    const int calls = static_cast<int>(std::clamp<std::size_t>(room / bytes, 4, 200));
    std::vector<double> found;
    for (int round = -1; round < rounds; ++round) {
      const auto begin = Clock::now();
      for (int call = 0; call < calls; ++call) queue(static_cast<std::size_t>(call) % places * bytes);
      finish(*gpu, stream());
      if (round >= 0) found.push_back(microseconds_since(begin) / 1e6 / calls);
    }
    return median(found);
  }

  void measure_copy(std::size_t bytes) {
    const double seconds = seconds_of(bytes, [&](std::size_t place) {
      const Move move{from.data() + place, to.data() + place, static_cast<std::int64_t>(bytes)};
      check(gpu->move(stream(), {&move, 1}, {DataType::u8, DataType::u8, 1.0}));
    });
    copy_rate = 2 * static_cast<double>(bytes) / seconds;
    std::printf("%6zu MB, one copy of the driver: %9.1f us, %6.0f GB/s read and written\n", bytes >> 20, seconds * 1e6,
                copy_rate / 1e9);
  }

  static constexpr const char* ways[] = {"pack", "unpack"};
  void measure(std::size_t tensors, std::size_t bytes, const Treatment& treatment, std::size_t misalignment,
               const char* what) {
    const List list = list_of(tensors, bytes, size_of(treatment.from), size_of(treatment.to), misalignment);
    for (const char* way : ways) {
      const bool packs = way == ways[0];
      if (!packs && treatment.from != treatment.to) continue;
      std::vector<Move> moves = list.moves;
      const double seconds = seconds_of(list.end_of_tensors, [&](std::size_t place) {
        for (std::size_t i = 0; i < moves.size(); ++i) {
          moves[i] = list.moves[i];
          moves[i].from = static_cast<const std::byte*>(moves[i].from) + place;
          moves[i].to = static_cast<std::byte*>(moves[i].to) + place;
          if (!packs) moves[i] = {moves[i].to, const_cast<void*>(moves[i].from), moves[i].count};
        }
        check(gpu->move(stream(), moves, treatment));
      });
      const double touched = static_cast<double>(list.bytes) * (1 + static_cast<double>(size_of(treatment.to)) /
                                                                        static_cast<double>(size_of(treatment.from)));
      std::printf("%6zu MB, %4zu tensors, %-6s %-22s %9.1f us, %6.0f GB/s, %5.1f %% of the copy\n", bytes >> 20,
                  tensors, way, what, seconds * 1e6, touched / seconds / 1e9, 100 * touched / seconds / copy_rate);
    }
  }

  // The host's time for a call on a stream that has little queued.
  void measure_host(std::size_t tensors, std::size_t bytes, const Treatment& treatment, const char* what) {
    const List list = list_of(tensors, bytes, size_of(treatment.from), size_of(treatment.to), 0);
    if (list.end_of_tensors > room) return;
    std::vector<double> found;
    for (int call = 0; call < 200; ++call) {
      const auto begin = Clock::now();
      check(gpu->move(stream(), list.moves, treatment));
      found.push_back(microseconds_since(begin));
      finish(*gpu, stream());
    }
    std::printf("host: move of %4zu tensors, %-22s %6.2f us\n", tensors, what, median(found));
  }

  void measure_events() {
    std::vector<double> records, looks, ends;
    for (int call = 0; call < 500; ++call) {
      const Move move{from.data(), to.data(), 1};
      const auto begin = Clock::now();
      check(gpu->move(stream(), {&move, 1}, {DataType::f32, DataType::f32, 0.5}));
      const auto moved = Clock::now();
      const auto end = gpu->record(stream());
      records.push_back(microseconds_since(moved));
      if (!end) break;
      const auto looked = Clock::now();
      bool is_there = gpu->query(*end, nullptr).value();
      looks.push_back(microseconds_since(looked));
      while (!is_there) is_there = gpu->query(*end, nullptr).value();
      ends.push_back(microseconds_since(begin));
    }
    std::printf(
        "host: record %.2f us, query %.2f us; a kernel on one tensor, from the call until the host sees its end "
        "%.2f us\n",
        median(records), median(looks), median(ends));
  }

  static void check(const Status& status) {
    if (status) return;
    std::fprintf(stderr, "%s\n", status.error().message.c_str());
    std::exit(1);
  }
};

}  // namespace

int main(int count, char** arguments) {
  const std::size_t mb = std::size_t{1} << 20;
  const std::size_t all = (count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 12288) * mb;
  auto gpu = devices::cuda::Gpu::open(0, Environment::of_this_process());
  if (!gpu) {
    std::fprintf(stderr, "no GPU: %s\n", gpu.error().message.c_str());
    return 3;
  }
  Bench bench{std::move(*gpu), {}, {}, {}, all / 2};
  bench.own = bench.gpu->stream().value();
  for (Memory* memory : {&bench.from, &bench.to}) {
    auto made = bench.gpu->allocate(bench.room, Where::on_device, bench.stream());
    if (!made) {
      std::fprintf(stderr, "%s\n", made.error().message.c_str());
      return 1;
    }
    *memory = std::move(*made);
  }
  constexpr Treatment plain{DataType::f32, DataType::f32, 1.0}, scaled{DataType::f32, DataType::f32, 0.125},
      halves{DataType::f16, DataType::f16, 1.0}, to_halves{DataType::f32, DataType::f16, 1.0};
  for (auto [tensors, bytes] : {std::pair{std::size_t{800}, 1024 * mb}, {200, 64 * mb}, {160, 8 * mb}, {32, mb}}) {
    if (bytes * 5 / 4 > bench.room) continue;
    bench.measure_copy(bytes);
    bench.measure(tensors, bytes, plain, 0, "f32");
    bench.measure(tensors, bytes, scaled, 0, "f32, scaled");
    bench.measure(tensors, bytes, plain, 4, "f32 at 4 bytes");
    bench.measure(tensors, bytes, halves, 2, "f16 at 2 bytes");
    bench.measure(tensors, bytes, to_halves, 0, "f32 to f16");
  }
  // Lists that are not scaled and have large tensors go through the copy engines there, the others through the kernel.
  std::printf("pack: from the host to the GPU; unpack: back\n");
  Memory on_gpu = std::move(bench.from);
  const std::size_t room_on_gpu = std::exchange(bench.room, std::min(bench.room, 256 * mb));
  if (auto made = bench.gpu->allocate(bench.room, Where::on_host, {})) {
    bench.from = std::move(*made);
    for (auto [tensors, bytes] : {std::pair{std::size_t{20}, 64 * mb}, {200, 64 * mb}, {20, 4 * mb}}) {
      if (bytes * 5 / 4 > bench.room) continue;
      bench.measure_copy(bytes);
      bench.measure(tensors, bytes, plain, 0, "f32");
      bench.measure(tensors, bytes, scaled, 0, "f32, scaled");
    }
  }
  bench.from = std::move(on_gpu);
  bench.room = room_on_gpu;
  bench.measure_host(800, 64 * mb, plain, "f32");
  bench.measure_host(800, 64 * mb, scaled, "f32, scaled");
  bench.measure_host(200, 8 * mb, scaled, "f32, scaled");
  bench.measure_host(60, mb, scaled, "f32, scaled");
  bench.measure_host(1, mb, plain, "f32 (a copy)");
  bench.measure_events();
}
