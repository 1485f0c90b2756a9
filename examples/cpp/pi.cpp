// A C++ program on many ranks: estimates pi, each rank with its own random numbers, and averages what they found.
//   horovodrun -np 4 ./hvd_example_pi
// With a file it saves there, and the same command goes on where an earlier one was interrupted:
//   horovodrun -np 4 ./hvd_example_pi pi.h5 1000
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>

#include "horovod.hpp"

int main(int count, char** words) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // horovodrun shows each line when it is printed
  horovod::Runtime job;
  const std::string file = count > 1 ? words[1] : "";
  const std::int64_t rounds = count > 2 ? std::atoll(words[2]) : 5;

  // Rank 0 decides how many rounds there are and looks for the file. The other ranks learn both by a broadcast.
  std::int64_t orders[2] = {0, 0};
  if (job.rank() == 0) {
    orders[0] = 1'000'000;
    orders[1] = !file.empty() && std::filesystem::exists(file) ? 1 : 0;
  }
  job.broadcast<std::int64_t>("orders", orders);
  const std::int64_t throws_per_round = orders[0];

  std::int64_t round = 0;
  double sum = 0;
  if (orders[1] == 1) {
    horovod::Checkpoint found(&job, file);
    round = found.step();
    found.read("/sum", std::span(&sum, 1));
    if (job.rank() == 0) std::printf("going on after round %d\n", static_cast<int>(round));
  }

  auto average = job.allreduce_op<double>("pi", 1, HVD_AVERAGE);
  while (round < rounds) {
    ++round;
    // Each round draws random numbers from its own seed, so a checkpoint need not contain their state.
    std::mt19937 random(static_cast<unsigned>(round * job.size() + job.rank()));
    std::uniform_real_distribution<double> coordinate(0.0, 1.0);
    std::int64_t hits = 0;
    for (std::int64_t i = 0; i < throws_per_round; ++i) {
      double x = coordinate(random), y = coordinate(random);
      if (x * x + y * y <= 1.0) ++hits;
    }
    double pi = 4.0 * static_cast<double>(hits) / static_cast<double>(throws_per_round);
    average.start({&pi, 1}).wait();
    sum += pi;
    if (job.rank() == 0)
      std::printf("round %d: pi is about %.9f (%d ranks)\n", static_cast<int>(round), sum / static_cast<double>(round),
                  job.size());
    if (file.empty()) continue;

    const bool stops = job.should_stop();
    if (stops || round == rounds || round % 100 == 0) {
      horovod::State state;
      state.add("/sum", std::span<const double>(&sum, 1));
      horovod::save(&job, file, state, round);
    }
    if (stops && round < rounds) return job.exit_code_of_stop();
  }

  // Gathers which ranks took part: each rank gives its number, and all ranks get the list.
  std::int32_t me = job.rank();
  std::vector<std::int32_t> ranks = job.allgather<std::int32_t>("ranks", {&me, 1});
  return ranks.size() == static_cast<std::size_t>(job.size()) ? 0 : 1;
}
