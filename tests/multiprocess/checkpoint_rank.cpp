// A rank of a job that saves and restores over the C interface: `checkpoint_rank FOLDER`. Exit code 77: HDF5 is
// missing.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "horovod.hpp"

namespace {

int failures = 0;

void expect(bool is_so, const std::string& what) {
  if (is_so) return;
  std::printf("process %d: not so: %s (%s)\n", static_cast<int>(::getpid()), what.c_str(), hvd_last_error());
  ++failures;
}

horovod::State state_of(const std::vector<float>& large, const std::vector<std::int64_t>& small) {
  horovod::State state;
  state.add("/model/large", large);
  state.add("/model/small", small);
  state.add("/loss", 0.25);
  return state;
}

// All ranks must get the values that rank 0 has saved.
void restores_what_rank_0_saved(horovod::Runtime& job, const std::string& folder) {
  std::vector<float> large(3000000, static_cast<float>(job.rank() + 1));
  std::vector<std::int64_t> small = {job.rank(), 7};
  horovod::save(&job, folder + "/a.h5", state_of(large, small), 5);
  horovod::Checkpoint found(&job, job.rank() == 0 ? folder : "/only/rank/0/opens/it");
  expect(found.step() == 5, "the step is 5");
  expect(found.path() == folder + "/a.h5", "every rank knows the path");
  std::vector<hvd_checkpoint_target> targets = {
      {sizeof(hvd_checkpoint_target), "/model/large", large.data(), large.size() * sizeof(float)},
      {sizeof(hvd_checkpoint_target), "/model/small", small.data(), small.size() * sizeof(std::int64_t)}};
  expect(hvd_checkpoint_read(found.get(), targets.data(), targets.size()) == HVD_OK, "it can be read");
  expect(large.front() == 1 && large.back() == 1 && small[0] == 0 && small[1] == 7, "it is what rank 0 saved");
  for (const hvd_checkpoint_entry& entry : found.entries())
    expect(std::strcmp(entry.path, "/loss") != 0 || entry.number == 0.25, "values come, too");
}

// If a call is refused, it is refused on all ranks. No rank waits for another one.
void is_refused_together(horovod::Runtime& job, const std::string& folder) {
  hvd_checkpoint* opened = nullptr;
  expect(hvd_checkpoint_open(job.get(), "/not/there.h5", &opened) != HVD_OK, "there is no such file");
  expect(std::strstr(hvd_last_error(), "/not/there.h5") != nullptr, "every rank knows which");
  expect(hvd_checkpoint_save(job.get(), folder.c_str(), nullptr, 0, nullptr) == HVD_INVALID_ARGUMENT,
         "a folder is no file");
  expect(hvd_checkpoint_open(job.get(), folder.c_str(), &opened) == HVD_OK, "the file is still there");
  std::vector<std::int64_t> small(2);
  const char* path = job.rank() == job.size() - 1 && job.size() > 1 ? "/model/none" : "/model/small";
  hvd_checkpoint_target target = {sizeof(hvd_checkpoint_target), path, small.data(), sizeof(std::int64_t) * 2};
  bool is_read = hvd_checkpoint_read(opened, &target, 1) == HVD_OK;
  expect(is_read == (job.size() == 1), "all ranks read, or none");
  hvd_checkpoint_close(opened);
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) return 2;
  if (hvd_checkpoint_library(nullptr) != HVD_OK) return 77;
  horovod::Runtime job;
  restores_what_rank_0_saved(job, words[1]);
  is_refused_together(job, words[1]);
  return failures == 0 ? 0 : 1;
}
