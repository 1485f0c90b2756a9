// Several processes on one GPU, with and without MPS.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>
#include <vector>

#include "driver.hpp"
#include "questions.hpp"

namespace probe {

namespace {

// The time that each of some processes needs for its launches, while all of them launch.
void ask_processes_of(const std::string& name, int processes) {
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i) {
    const pid_t child = ::fork();
    if (child > 0) {
      children.push_back(child);
      continue;
    }
    if (!driver().load().empty()) ::_exit(1);
    Gpu gpu;
    CUfunction nothing = gpu.function("nothing");
    std::this_thread::sleep_for(std::chrono::seconds(2));  // until all have a context
    const double cost = time_of(2000, [&](int) {
      gpu.launch(nothing, nullptr);
      driver().cuStreamSynchronize(gpu.stream);
    });
    say(name + ".launch_and_wait." + std::to_string(i), cost, "us");
    ::_exit(0);
  }
  int failed = 0;
  for (pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    failed += status != 0;
  }
  say(name + ".failed", failed, "processes");
}

int run(const std::string& command) {
  const int status = ::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

void ask_processes() {
  ask_processes_of("processes.one", 1);
  ask_processes_of("processes.four", 4);
}

// A daemon of our own, in a folder of our own. It is told to end afterwards.
void ask_mps() {
  if (run("command -v nvidia-cuda-mps-control > /dev/null") != 0) skip("mps", "no_nvidia-cuda-mps-control");
  const auto folder = std::filesystem::temp_directory_path() / ("probe-mps-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  ::setenv("CUDA_MPS_PIPE_DIRECTORY", folder.c_str(), 1);
  ::setenv("CUDA_MPS_LOG_DIRECTORY", folder.c_str(), 1);
  if (run("nvidia-cuda-mps-control -d > /dev/null 2>&1") != 0) skip("mps", "the_daemon_does_not_start");
  ask_processes_of("mps.four", 4);
  say("mps.quit", run("echo quit | timeout 5 nvidia-cuda-mps-control > /dev/null 2>&1"), "status");
  std::filesystem::remove_all(folder);
}

}  // namespace probe
