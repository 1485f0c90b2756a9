// A C++ program on many ranks: estimates pi, each rank with its own random numbers, and averages what they found.
//   horovodrun -np 4 ./hvd_example_pi
#include <cstdio>
#include <random>

#include "horovod.hpp"

int main() {
  horovod::Runtime job;

  // Rank 0 decides how much there is to do; the others learn it.
  std::int64_t throws_per_round = job.rank() == 0 ? 1'000'000 : 0;
  job.broadcast<std::int64_t>("throws", {&throws_per_round, 1});

  std::mt19937 random(static_cast<unsigned>(job.rank()));
  std::uniform_real_distribution<double> coordinate(0.0, 1.0);
  auto average = job.allreduce_op<double>("pi", 1, HVD_AVERAGE);
  double sum = 0;
  constexpr int rounds = 5;
  for (int round = 1; round <= rounds; ++round) {
    std::int64_t hits = 0;
    for (std::int64_t i = 0; i < throws_per_round; ++i) {
      double x = coordinate(random), y = coordinate(random);
      if (x * x + y * y <= 1.0) ++hits;
    }
    double pi = 4.0 * static_cast<double>(hits) / static_cast<double>(throws_per_round);
    average.start({&pi, 1}).wait();
    sum += pi;
    if (job.rank() == 0) std::printf("round %d: pi is about %.6f (%d ranks)\n", round, sum / round, job.size());
  }

  // Who took part: each rank gives its number, and all ranks get the list.
  std::int32_t me = job.rank();
  std::vector<std::int32_t> ranks = job.allgather<std::int32_t>("ranks", {&me, 1});
  return ranks.size() == static_cast<std::size_t>(job.size()) ? 0 : 1;
}
