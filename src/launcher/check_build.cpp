#include "launcher/check_build.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <vector>

#include "base/deadline.hpp"
#include "native/posix/file_descriptor.hpp"
#include "native/posix/plugin.hpp"
#include "native/posix/process.hpp"

namespace hvd::launcher {
namespace {

// The output of a Python that only looks where packages lie; empty if there is none, or it takes too long.
std::string ask_python(const Environment& environment) {
  constexpr const char* script =
      "import importlib.util as u\n"
      "for m in ('tensorflow', 'torch', 'mxnet'):\n"
      "    if u.find_spec(m) is not None: print(m, flush=True)\n";
  int code = 0;
  std::string path = environment.get("PATH").value_or("/usr/bin:/bin");
  auto python = posix::find_program("python", path, code);
  if (!python) python = posix::find_program("python3", path, code);
  int ends[2];
  if (!python || ::pipe2(ends, O_CLOEXEC) != 0) return "";
  posix::FileDescriptor output(ends[0]), input(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, input.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<std::string> words = {*python, "-c", script};
  std::vector<char*> arguments = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t child = 0;
  int failed = ::posix_spawn(&child, python->c_str(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  input.reset();
  if (failed != 0) return "";
  std::string text;
  Deadline deadline = Deadline::after(std::chrono::seconds(20));
  for (char chunk[256];;) {
    pollfd readable{output.get(), POLLIN, 0};
    if (::poll(&readable, 1, static_cast<int>(deadline.left().count())) <= 0) {
      ::kill(child, SIGKILL);
      break;
    }
    ssize_t count = ::read(output.get(), chunk, sizeof chunk);
    if (count <= 0) break;
    text.append(chunk, static_cast<std::size_t>(count));
  }
  ::waitpid(child, nullptr, 0);
  return text;
}

std::string item(bool available, const char* name) {
  return std::string("    ") + (available ? "[X] " : "[ ] ") + name + "\n";
}

bool has_plugin(const char* name, const Environment& environment) {
  // Any table size does to find out whether one is there: the message of a size that differs names the file.
  auto table = posix::open_plugin_table(name, 0, environment);
  return table || table.error().message.find("has a table of") != std::string::npos;
}

// One per kind of MPI. They open only beside the library that they are for, which the program brings.
struct MpiPlugin {
  const char* file;
  const char* name;
};
constexpr MpiPlugin mpi_plugins[] = {{"mpi-mpich", "MPI of MPICH's ABI (MPICH, Intel, Cray, MVAPICH)"},
                                     {"mpi-openmpi", "MPI of Open MPI's ABI (Open MPI, Spectrum, HPC-X)"},
                                     {"mpi-abi", "MPI of the standard's ABI (MPI 5)"}};
bool has_mpi_plugin(const MpiPlugin& plugin, const Environment& environment) {
  return !posix::plugin_path(plugin.file, environment).empty();
}

}  // namespace

std::string check_build_text(const Environment& environment, bool verbose) {
  std::string found = "\n" + ask_python(environment);
  auto has = [&](const char* module) { return found.find("\n" + std::string(module) + "\n") != std::string::npos; };
  bool mpi = std::any_of(std::begin(mpi_plugins), std::end(mpi_plugins),
                         [&](const MpiPlugin& plugin) { return has_mpi_plugin(plugin, environment); });
  bool nccl = has_plugin("nccl", environment);
  std::string text = verbose ? "\n" : "";
  text += std::string("Horovod v") + posix::plugin_stamp(0).version + ":\n\n";
  text += "Available Frameworks:\n" + item(has("tensorflow"), "TensorFlow") + item(has("torch"), "PyTorch") +
          item(has("mxnet"), "MXNet");
  text += "\nAvailable Controllers:\n" + item(mpi, "MPI") + item(true, "Gloo");
  text += "\nAvailable Tensor Operations:\n" + item(nccl, "NCCL") + item(false, "DDL") + item(false, "CCL") +
          item(mpi, "MPI") + item(true, "Gloo");
  text += "\nAvailable Plugins:\n" + item(has_plugin("pmix", environment), "PMIx") +
          item(has_plugin("hwloc", environment), "hwloc");
  for (const MpiPlugin& plugin : mpi_plugins) text += item(has_mpi_plugin(plugin, environment), plugin.name);
  text +=
      "\n(Gloo stands for what needs no MPI: agreement and operations over shared memory and sockets of Horovod's "
      "own.)\n";
  return text;
}

}  // namespace hvd::launcher
