// Our data plane for a Python program that compares it with Gloo in one process. It is called through ctypes. The loop
// over calls is on this side, so that the interpreter's time is not measured.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "link/our_link.hpp"

#define HVD_BENCHMARK_API extern "C" __attribute__((visibility("default")))

namespace {

using hvd::Buffer;

// Gathers `length` bytes of every rank into `all`, by rank.
using AllgatherFunction = void (*)(const void* mine, int length, void* all);

struct LinkOfPython {
  std::unique_ptr<hvd::benchmark::OurLink> link;
  std::function<void()> allreduce;
};

hvd::benchmark::Ranks ranks_of(int rank, int size, int is_crowded, AllgatherFunction allgather) {
  hvd::benchmark::Ranks ranks{rank, size, is_crowded != 0, nullptr, [rank](const std::string& why) {
                                std::fprintf(stderr, "benchmark, rank %d: %s\n", rank, why.c_str());
                                std::_Exit(1);  // this rank ends with an error, and the launcher then ends the others
                              }};
  ranks.allgather = [=](const Buffer& mine) {
    // All ranks exchange blocks of the greatest length. Each block begins with the length of the rank's own value.
    int longest = 4096;
    if (mine.size() + sizeof(std::size_t) > static_cast<std::size_t>(longest)) ranks.fail("a value is too long");
    Buffer padded(static_cast<std::size_t>(longest)), all(padded.size() * static_cast<std::size_t>(size));
    std::size_t length = mine.size();
    std::memcpy(padded.data(), &length, sizeof length);
    if (length > 0) std::memcpy(padded.data() + sizeof length, mine.data(), length);
    allgather(padded.data(), longest, all.data());
    std::vector<Buffer> by_rank;
    for (auto block = all.begin(); block != all.end(); block += longest) {
      std::memcpy(&length, &*block, sizeof length);
      auto begin = block + static_cast<std::ptrdiff_t>(sizeof length);
      by_rank.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(length));
    }
    return by_rank;
  };
  return ranks;
}

}  // namespace

HVD_BENCHMARK_API LinkOfPython* hvd_benchmark_open(int rank, int size, int is_crowded, AllgatherFunction allgather) {
  auto opened = std::make_unique<LinkOfPython>();
  opened->link = std::make_unique<hvd::benchmark::OurLink>(ranks_of(rank, size, is_crowded, allgather));
  return opened.release();
}

HVD_BENCHMARK_API void hvd_benchmark_close(LinkOfPython* link) {
  delete link;
}

// Sets what the next calls reduce. Collective.
HVD_BENCHMARK_API void hvd_benchmark_plan(LinkOfPython* link, float* data, std::size_t count) {
  hvd::Collective collective;
  collective.count = static_cast<std::int64_t>(count);
  auto segments = hvd::benchmark::one_segment(data, count, hvd::DataType::f32);
  link->allreduce = link->link->call(collective, segments, segments);
}

// Returns the seconds of all calls together.
HVD_BENCHMARK_API double hvd_benchmark_allreduce(LinkOfPython* link, int calls) {
  auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) link->allreduce();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
