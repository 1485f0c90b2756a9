// A rank of a job that is suspended: steps_rank FOLDER. Reduces tensors step after step and checks every sum. All ranks
// end together, after FOLDER/stop is there; each then writes its last step to FOLDER/end.RANK. Meanwhile rank 0 writes
// the number of its step to FOLDER/step.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "horovod.hpp"

namespace {

void write(const std::string& path, std::int64_t number) {
  std::ofstream(path + ".new") << number << '\n';
  std::filesystem::rename(path + ".new", path);
}

bool are_all(const std::vector<float>& data, float expected) {
  for (float value : data)
    if (value != expected) return false;
  return true;
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) return 2;
  const std::string folder = words[1];
  horovod::Runtime job;
  std::vector<float> large(1 << 20), small(10);
  auto large_sum = job.allreduce_op<float>("large", large.size(), HVD_SUM);
  auto small_sum = job.allreduce_op<float>("small", small.size(), HVD_SUM);
  std::int64_t step = 0;
  do {
    ++step;
    const auto value = static_cast<float>(step % 1000);
    const auto sum = value * static_cast<float>(job.size());
    large.assign(large.size(), value);
    small.assign(small.size(), value);
    auto first = large_sum.start(large);
    small_sum.start(small).wait();
    first.wait();
    if (!are_all(large, sum) || !are_all(small, sum)) {
      std::printf("step %lld has wrong sums\n", static_cast<long long>(step));
      return 1;
    }
    if (job.rank() == 0) {
      write(folder + "/step", step);
      if (std::filesystem::exists(folder + "/stop")) job.request_stop("told to");
    }
  } while (!job.should_stop());
  write(folder + "/end." + std::to_string(job.rank()), step);
}
