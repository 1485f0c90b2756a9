#include "launcher/options/check_build.hpp"

#include <string.h>

#include <sstream>
#include <string>
#include <vector>

#include "base/gpu_makes.hpp"
#include "checkpoint/reader.hpp"
#include "launcher/options/gpu_libraries.hpp"
#include "launcher/options/mpi_plugins.hpp"
#include "native/posix/files/program_file.hpp"
#include "native/posix/plugins/plugin.hpp"
#include "native/posix/processes/ask_program.hpp"
#include "native/posix/processes/process.hpp"

namespace hvd::launcher {
namespace {

// The script runs in the Python of the user's programs. It tells whether the package horovod is there, and for which
// frameworks our binding is there. It does not import those of PyTorch and TensorFlow, because importing these takes
// seconds.
struct Python {
  std::string path;  // path of the program; empty: there is none
  std::string answer;
  bool has(const char* word) const {
    return ("\n" + answer).find("\n" + std::string(word) + "\n") != std::string::npos;
  }
  // What follows this word, in each line that begins with it.
  std::vector<std::string> told(const std::string& word) const {
    std::vector<std::string> found;
    std::istringstream lines(answer);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with(word + " ")) found.push_back(line.substr(word.size() + 1));
    return found;
  }
};

Python ask_python(const Environment& environment) {
  constexpr const char* script =
      "import importlib, importlib.util as u\n"
      "def there(name):\n"
      "    try: return u.find_spec(name) is not None\n"
      "    except ImportError: return False\n"
      "if there('horovod'): print('horovod', flush=True)\n"
      "for m in ('tensorflow', 'torch', 'mxnet'):\n"
      "    if not there(m) or not there('horovod.' + m): continue\n"
      "    try:\n"
      "        if m == 'mxnet': importlib.import_module('horovod.' + m)\n"
      "    except Exception: continue\n"
      "    print(m, flush=True)\n"
      "import pathlib\n"
      "h5py = u.find_spec('h5py') if there('h5py') else None\n"
      "libraries = pathlib.Path(h5py.origin).parent.parent / 'h5py.libs' if h5py and h5py.origin else None\n"
      "if libraries and list(libraries.glob('libhdf5-*.so*')): print('h5py')\n"
      "try:\n"
      "    from horovod.common.built_streams import versions\n"
      "    for version in versions(): print('streams', version)\n"
      "except ImportError: pass\n"
      "for folder in u.find_spec('nvidia').submodule_search_locations if there('nvidia') else ():\n"
      "    nccl = pathlib.Path(folder, 'nccl/lib/libnccl.so.2')\n"
      "    if nccl.exists(): print('nccl', nccl)\n";
  int code = 0;
  std::string path = posix::search_path(environment);
  auto python = posix::find_program("python", path, code);
  if (!python) python = posix::find_program("python3", path, code);
  if (!python) return {};
  return {*python, posix::answer_of({*python, "-c", script}, std::chrono::seconds(20), false)};
}

std::string item(bool available, const char* name) {
  return std::string("    ") + (available ? "[X] " : "[ ] ") + name + "\n";
}

std::string compiler() {
#if defined(__clang__)
  return "Clang " + std::to_string(__clang_major__) + "." + std::to_string(__clang_minor__) + "." +
         std::to_string(__clang_patchlevel__);
#else
  return "GCC " __VERSION__;
#endif
}

// Of the launcher, the library and the plugins, the one that needs the newest glibc says how old a system may be.
std::string needed_glibc(const Environment& environment) {
  std::vector<std::string> files = posix::installed_libraries(environment);
  files.emplace_back("/proc/self/exe");
  std::string newest, whose;
  for (const std::string& path : files) {
    auto file = posix::read_program_file(path);
    if (!file || ::strverscmp(file->glibc.c_str(), newest.c_str()) <= 0) continue;
    newest = file->glibc;
    whose = path == files.back() ? "horovodrun" : path.substr(path.rfind('/') + 1);
  }
  return newest.empty() ? "none" : newest + " or later (" + whose + ")";
}

// Checkpoints need HDF5. Where the loader finds none, ranks of Python take the copy that came with h5py.
std::string hdf5_item(const Environment& environment, const Python& python) {
  auto library = hdf5::library(environment);
  if (library) return item(true, ("HDF5 " + (*library)->version + ", for checkpoints").c_str());
  const bool has_copy = python.has("h5py");
  return item(has_copy, has_copy ? "HDF5, the copy of h5py, for checkpoints of Python"
                                 : "HDF5, for checkpoints (HOROVOD_HDF5 names a file of it)");
}

std::string found_text(const FoundLibrary& found, const std::string& what, const char* otherwise) {
  return found.version.empty() ? otherwise : "found: " + what + found.version + ", " + found.file;
}

std::string gpu_items(const Environment& environment, const Python& python) {
  const std::string driver = found_text(find_gpu_driver(environment), "a driver for CUDA ", "no driver was found here");
  const std::string nccl = found_text(find_nccl(environment, python.told("nccl")), "",
                                      "no library was found here; pip install nvidia-nccl-cu12 brings one");
  std::string items;
  for (const GpuMake& make : gpu_makes()) {
    std::string text = std::string(make.title) + ", for tensors in the memory of " + make.owner + " GPUs";
    if (make.kind == DeviceKind::cuda) text += " (" + driver + ")";
    items += item(posix::can_open_plugin(make.plugin, environment), text.c_str());
  }
  return items + item(posix::can_open_plugin("nccl", environment),
                      ("NCCL, for tensors from GPU to GPU (" + nccl + ")").c_str());
}

// What lets operations of TensorFlow take tensors of GPUs where they are. It is built on the user's machine.
std::string streams_item(const Python& python) {
  std::string built;
  for (const std::string& version : python.told("streams")) built += (built.empty() ? "" : ", ") + version;
  return item(!built.empty(), ("TensorFlow's streams, for its tensors in the memory of GPUs (" +
                               (built.empty() ? "python -m horovod.tensorflow.build" : "built for " + built) + ")")
                                  .c_str());
}

}  // namespace

std::string check_build_text(const Environment& environment, bool verbose) {
  Python python = ask_python(environment);
  bool mpi = has_mpi_plugin(environment);
  bool nccl = posix::can_open_plugin("nccl", environment);
  std::string text = verbose ? "\n" : "";
  text += std::string("Horovod v") + posix::plugin_stamp(0).version + ":\n\n";
  text += "Available Frameworks:\n" + item(python.has("tensorflow"), "TensorFlow") +
          item(python.has("torch"), "PyTorch") + item(python.has("mxnet"), "MXNet");
  text += "\nAvailable Controllers:\n" + item(mpi, "MPI") + item(true, "Gloo");
  text += "\nAvailable Tensor Operations:\n" + item(nccl, "NCCL") + item(false, "DDL") + item(false, "CCL") +
          item(mpi, "MPI") + item(true, "Gloo");
  text += "\nAvailable Plugins:\n" + item(posix::can_open_plugin("pmix", environment), "PMIx") +
          item(posix::can_open_plugin("hwloc", environment), "hwloc") + gpu_items(environment, python);
  for (const MpiPlugin& plugin : mpi_plugins()) text += item(is_installed(plugin, environment), plugin.name);
  if (python.has("tensorflow")) text += streams_item(python);
  text += hdf5_item(environment, python);
  text += "\nBuild:\n    compiler: " + compiler() + "\n    needs glibc: " + needed_glibc(environment) + "\n";
  if (python.path.empty()) text += "\n(There is no Python along PATH to ask for frameworks.)\n";
  else if (!python.has("horovod"))
    text += "\n(The Python along PATH, " + python.path + ", has no package horovod, so no framework is ticked.)\n";
  text +=
      "\n(Gloo stands for what needs no MPI: agreement and operations over shared memory and sockets of Horovod's "
      "own.)\n";
  return text;
}

}  // namespace hvd::launcher
