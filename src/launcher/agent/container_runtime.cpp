#include "launcher/agent/container_runtime.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string_view>

#include "base/gpu_makes.hpp"
#include "native/posix/processes/process.hpp"

namespace hvd::launcher {
namespace {

using WordList = std::vector<std::string>;

struct ContainerRun {
  const Image& image;
  const WordList& command;
  const std::vector<Bind>& binds;
  const Environment& of_rank;
  const HostView& host;
};

// The variables that must be those of the image. If a runtime passes on no variables by itself, all others are passed
// on by name, as other runtimes do: the same command line trains with the same values everywhere.
constexpr std::string_view of_image[] = {"PATH",   "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT",        "HOME",
                                         "SHELL",  "HOSTNAME",        "PWD",        "OLDPWD",          "SHLVL",
                                         "_",      "PYTHONHOME",      "MANPATH",    "XDG_RUNTIME_DIR", "XDG_DATA_DIRS",
                                         "TMPDIR", "VIRTUAL_ENV"};

// Shells export functions under names that are none for a runtime.
bool is_plain_name(std::string_view name) {
  return name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") ==
         std::string_view::npos;
}

WordList names_handed_on(const Environment& of_rank) {
  WordList names;
  for (const auto& [name, value] : of_rank.variables())
    if (is_plain_name(name) && !name.starts_with("CONDA_") &&
        std::find(std::begin(of_image), std::end(of_image), name) == std::end(of_image))
      names.push_back(name);
  return names;
}

void add_words(WordList& words, const WordList& more) {
  words.insert(words.end(), more.begin(), more.end());
}

// A file that is there if the driver of these GPUs is, and Apptainer's flag for them. Empty: there is none.
struct GpusOfContainers {
  std::string file;
  std::string flag;
};
GpusOfContainers gpus_of_containers(DeviceKind gpus) {
  switch (gpus) {
    case DeviceKind::host: break;
    case DeviceKind::cuda: return {"/dev/nvidiactl", "--nv"};
    case DeviceKind::rocm: return {"/dev/kfd", "--rocm"};
  }
  return {};
}

Result<WordList> in_apptainer(const std::string& program, const ContainerRun& run) {
  WordList words{program, "exec", "--pwd", run.host.folder};
  if (std::string flag = gpus_of_containers(run.host.gpus).flag; !flag.empty()) words.push_back(std::move(flag));
  for (const Bind& bind : run.binds) add_words(words, {"--bind", bind.source + ":" + bind.target});
  words.push_back((run.image.kind == ImageKind::oci ? "oci:" : "") + run.image.word);
  add_words(words, run.command);
  return words;
}

// Charliecloud shows an image read-only, so it can bind a folder only over a folder that the image has. If the image
// lacks the folder, the nearest parent that the image has is bound instead, unless the image has content of its own
// there.
Result<Bind> over_what_is_there(Bind bind, const ContainerRun& run) {
  constexpr std::string_view own[] = {"/", "/bin", "/ch", "/etc", "/lib", "/lib64", "/opt", "/sbin", "/usr", "/var"};
  const std::string wanted = bind.target;
  while (run.image.kind == ImageKind::folder && !run.host.exists(run.image.word + bind.target)) {
    const std::size_t slash = bind.target.rfind('/');
    std::string above = slash == 0 || slash == std::string::npos ? "/" : bind.target.substr(0, slash);
    if (bind.source != bind.target || std::find(std::begin(own), std::end(own), above) != std::end(own))
      return Error(ErrorCode::unsupported, "the image " + run.image.word + " has no folder " + wanted +
                                               " over which Charliecloud could show that of the host: make it in the "
                                               "image (mkdir -p " +
                                               wanted + "), or start in a folder that the image has");
    bind.source = bind.target = std::move(above);
  }
  return bind;
}

Result<WordList> in_charliecloud(const std::string& program, const ContainerRun& run) {
  WordList words{program, "--cd=" + run.host.folder, "--unset-env=LD_LIBRARY_PATH"};
  // The file in the image that holds its variables, such as PATH.
  if (run.image.kind == ImageKind::folder && run.host.exists(run.image.word + "/ch/environment"))
    words.emplace_back("--set-env");
  WordList binds;
  for (const Bind& wanted : run.binds) {
    auto bind = over_what_is_there(wanted, run);
    if (!bind) return bind.error();
    std::string word = "--bind=" + bind->source + ":" + bind->target;
    if (std::find(binds.begin(), binds.end(), word) == binds.end()) binds.push_back(std::move(word));
  }
  add_words(words, binds);
  add_words(words, {run.image.word, "--"});
  add_words(words, run.command);
  return words;
}

// Shared memory, sockets and process numbers are those of the host, as if the rank were not in a container.
Result<WordList> in_podman(const std::string& program, const ContainerRun& run) {
  WordList words{program, "run", "--rm", "--interactive", "--net=host", "--ipc=host", "--pid=host", "--userns=keep-id"};
  if (run.host.gpus != DeviceKind::host) words.emplace_back("--gpu");
  add_words(words, {"--workdir", run.host.folder});
  add_words(words, {"--volume", "/tmp:/tmp"});  // the other runtimes show /tmp without being asked
  for (const Bind& bind : run.binds) add_words(words, {"--volume", bind.source + ":" + bind.target});
  for (const std::string& name : names_handed_on(run.of_rank)) add_words(words, {"--env", name});
  words.push_back((run.image.kind == ImageKind::oci ? "oci:" : "") + run.image.word);
  add_words(words, run.command);
  return words;
}

Result<WordList> in_enroot(const std::string& program, const ContainerRun& run) {
  WordList words{program, "start", "--root"};
  for (const Bind& bind : run.binds) add_words(words, {"--mount", bind.source + ":" + bind.target});
  for (const std::string& name : names_handed_on(run.of_rank)) add_words(words, {"--env", name});
  // Enroot begins in a folder of its own, so the shell changes to the rank's folder.
  add_words(words, {run.image.word, "sh", "-c", "cd \"$0\" && exec \"$@\"", run.host.folder});
  add_words(words, run.command);
  return words;
}

using enum ImageKind;
struct Runtime {
  const char* name;
  std::initializer_list<ImageKind> kinds;
  Result<WordList> (*compose)(const std::string& program, const ContainerRun& run);
};
// The runtimes in the order in which they are tried.
const Runtime runtimes[] = {
    {"apptainer", {sif, squashfs, folder, oci}, in_apptainer},
    {"singularity", {sif, squashfs, folder, oci}, in_apptainer},
    {"ch-run", {folder, squashfs}, in_charliecloud},
    {"podman-hpc", {named, oci}, in_podman},
    {"enroot", {squashfs}, in_enroot},
};

bool takes(const Runtime& runtime, ImageKind kind) {
  return std::find(runtime.kinds.begin(), runtime.kinds.end(), kind) != runtime.kinds.end();
}

Error no_runtime(const Image& image, const std::string& wanted) {
  std::string names;
  for (const Runtime& runtime : runtimes)
    if (takes(runtime, image.kind)) names += (names.empty() ? "" : ", ") + std::string(runtime.name);
  std::string message = "no program that runs " + image.word + " was found along PATH: expected one of " + names;
  if (!wanted.empty())
    message = "HOROVOD_CONTAINER_RUNTIME=" + wanted + " is none of those that run " + image.word + " (" + names +
              "), or not along PATH";
  return Error(ErrorCode::unsupported, message + "; load the site's module for containers");
}

std::string plain_path(const std::string& path) {
  std::string plain = std::filesystem::path(path).lexically_normal().string();
  while (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  return plain;
}

// Returns the folders of the launcher's sockets. Programs of other users must not see each other's sockets, so runtimes
// do not show these folders unless they are asked to.
WordList folders_of_the_launcher(const Environment& of_rank) {
  WordList folders;
  for (const auto& [name, value] : of_rank.variables()) {
    const bool is_server = name == "PMIX_SERVER_TMPDIR" || name == "PMIX_SYSTEM_TMPDIR";
    const bool is_store = name.starts_with("PMIX_DSTORE_") && name.ends_with("_BASE_PATH");
    if (is_server || is_store || name == "HOROVOD_SHARED_DIR") folders.push_back(plain_path(value));
  }
  if (of_rank.get("PMIX_SECURITY_MODE").value_or("").find("munge") != std::string::npos)
    folders.emplace_back("/run/munge");
  if (of_rank.has("PALS_RANKID")) folders.emplace_back("/run/palsd");
  std::sort(folders.begin(), folders.end());  // a folder inside another comes later and needs no bind
  return folders;
}

bool lies_in(const std::string& path, const std::string& folder) {
  return path == folder || (path.starts_with(folder) && (folder == "/" || path[folder.size()] == '/'));
}

bool exists_here(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string program_here(const std::string& name) {
  int code = 0;
  auto found = posix::find_program(name, posix::search_path(Environment::of_this_process()), code);
  return found ? *found : std::string();
}

}  // namespace

HostView host_view() {
  std::error_code failed;
  HostView view{std::filesystem::current_path(failed).string(), DeviceKind::host, exists_here, program_here};
  if (failed) view.folder = "/";
  for (const GpuMake& make : gpu_makes())
    if (view.gpus == DeviceKind::host && exists_here(gpus_of_containers(make.kind).file)) view.gpus = make.kind;
  return view;
}

Result<std::vector<Bind>> binds_for_rank(const Environment& of_rank, const HostView& host) {
  std::vector<Bind> binds;
  auto add = [&](const std::string& source, const std::string& target) {
    const bool is_seen = std::any_of(binds.begin(), binds.end(), [&](const Bind& bind) {
      return bind.source == bind.target && source == target && lies_in(source, bind.source);
    });
    if (!is_seen) binds.push_back({source, target});
  };
  // With every runtime the container sees what is in these folders.
  auto is_shown_anyway = [](const std::string& path) { return lies_in(path, "/tmp") || lies_in(path, "/dev"); };
  if (host.folder != "/" && !is_shown_anyway(host.folder)) add(host.folder, host.folder);
  for (const std::string& folder : folders_of_the_launcher(of_rank))
    if (!folder.empty() && !is_shown_anyway(folder) && host.exists(folder)) add(folder, folder);

  const std::string wanted = of_rank.get("HOROVOD_CONTAINER_BIND").value_or("");
  for (std::size_t at = 0; at < wanted.size();) {
    const std::size_t end = std::min(wanted.find(',', at), wanted.size());
    const std::string word = wanted.substr(at, end - at);
    const std::size_t colon = word.find(':');
    const std::string source = word.substr(0, colon);
    if (!host.exists(source))
      return Error(ErrorCode::invalid_argument,
                   "--container-bind " + word + ": there is no " + source + " on this host");
    add(source, colon == std::string::npos ? source : word.substr(colon + 1));
    at = end + 1;
  }
  if (const std::string mpi = of_rank.get("HOROVOD_CONTAINER_MPI").value_or(""); !mpi.empty()) {
    if (!host.exists(mpi))
      return Error(ErrorCode::invalid_argument, "--container-mpi " + mpi + ": there is no such folder on this host");
    add(mpi, "/host/mpi");
    add(mpi, mpi);  // MPI's libraries may name each other by their path
  }
  return binds;
}

Result<std::vector<std::string>> command_in_image(const Image& image, const std::vector<std::string>& command,
                                                  const Environment& of_rank, const HostView& host) {
  auto binds = binds_for_rank(of_rank, host);
  if (!binds) return binds.error();
  const std::string wanted = of_rank.get("HOROVOD_CONTAINER_RUNTIME").value_or("");
  for (const Runtime& runtime : runtimes) {
    if (!takes(runtime, image.kind) || (!wanted.empty() && wanted != runtime.name)) continue;
    if (std::string program = host.program(runtime.name); !program.empty())
      return runtime.compose(program, {image, command, *binds, of_rank, host});
  }
  return no_runtime(image, wanted);
}

}  // namespace hvd::launcher
