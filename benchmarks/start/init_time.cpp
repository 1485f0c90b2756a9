// Measures how long a job takes to begin: the milliseconds that hvd_init() took on the slowest rank. Rank 0 prints it.
#include <chrono>
#include <cstdio>

#include "horovod.hpp"

int main() try {
  auto begin = std::chrono::steady_clock::now();
  horovod::Runtime job;
  double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  auto slowest = job.allreduce_op<double>("slowest", 1, HVD_MAX);
  slowest.start({&ms, 1}).wait();
  if (job.rank() == 0) std::printf("%.1f\n", ms);
  return 0;
} catch (const horovod::Failure& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
