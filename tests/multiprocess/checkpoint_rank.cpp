// A rank of a job that saves and restores over the C interface: `checkpoint_rank FOLDER`. Exit code 77: HDF5 is
// missing.
//
// `checkpoint_rank FOLDER NOTES until-killed` goes on from the newest checkpoint in FOLDER and saves step after step;
// with `once` instead it only goes on. Each rank appends a line to the file NOTES: "from STEP" when it has restored,
// "saved STEP" when a save has returned.
#include <fcntl.h>
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

class Notes {
 public:
  explicit Notes(const char* path) : file_(::open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666)) {}
  void add(const char* what, std::int64_t step) {
    std::string line = std::string(what) + " " + std::to_string(step) + "\n";
    if (::write(file_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::perror("NOTES");
  }

 private:
  int file_;
};

// Returns the step of the newest checkpoint, 0 if there is none, -1 if its tensors are not those of its step.
std::int64_t go_on(horovod::Runtime& job, const std::string& folder, std::vector<float>& large) {
  hvd_checkpoint* opened = nullptr;
  if (hvd_checkpoint_open(job.get(), folder.c_str(), &opened) != HVD_OK) return 0;
  hvd_checkpoint_info info{};
  info.struct_size = sizeof info;
  hvd_checkpoint_target target = {sizeof target, "/model/large", large.data(), large.size() * sizeof(float)};
  bool is_read = hvd_checkpoint_get_info(opened, &info) == HVD_OK && hvd_checkpoint_read(opened, &target, 1) == HVD_OK;
  hvd_checkpoint_close(opened);
  for (float value : large) is_read = is_read && value == static_cast<float>(info.step);
  expect(is_read, "the tensors are those of step " + std::to_string(info.step));
  return is_read ? info.step : -1;
}

int save_until_killed(horovod::Runtime& job, const std::string& folder, Notes notes, bool is_once) {
  std::vector<float> large(1000000);
  std::int64_t step = go_on(job, folder, large);
  if (step < 0) return 1;
  notes.add("from", step);
  while (!is_once) {
    large.assign(large.size(), static_cast<float>(++step));
    horovod::State state = state_of(large, {step});
    char name[48];
    std::snprintf(name, sizeof name, "/step-%012lld.h5", static_cast<long long>(step));
    hvd_checkpoint_options options{};
    options.struct_size = sizeof options;
    options.step = step;
    options.lease = folder.c_str();
    options.keep = 2;
    if (step % 4 == 0) options.compression = "gzip:1";
    auto entries = state.entries();
    expect(hvd_checkpoint_save(job.get(), (folder + name).c_str(), entries.data(), entries.size(), &options) == HVD_OK,
           "it can be saved");
    if (failures > 0) return 1;
    notes.add("saved", step);
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) return 2;
  if (hvd_checkpoint_library(nullptr) != HVD_OK) return 77;
  horovod::Runtime job;
  if (count == 4) return save_until_killed(job, words[1], Notes(words[2]), std::string(words[3]) == "once");
  restores_what_rank_0_saved(job, words[1]);
  is_refused_together(job, words[1]);
  return failures == 0 ? 0 : 1;
}
