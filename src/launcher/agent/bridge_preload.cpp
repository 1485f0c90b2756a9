#include "launcher/agent/bridge_preload.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <vector>

#include "base/settings/config.hpp"
#include "native/posix/files/program_file.hpp"
#include "native/posix/plugins/plugin.hpp"

namespace hvd::launcher {
namespace {

// Inside these programs the ranks see other folders than the agent does.
constexpr std::string_view container_runtimes[] = {"apptainer", "singularity", "docker",       "podman",  "shifter",
                                                   "sarus",     "enroot",      "charliecloud", "ch-run",  "udocker",
                                                   "bwrap",     "chroot",      "nerdctl",      "kubectl", "runc"};
// A sanitizer's runtime ends its program if another library was loaded before the runtime.
constexpr std::string_view sanitizers[] = {"libasan.", "libtsan.", "liblsan.", "libhwasan.", "libclang_rt."};

std::string_view name_in(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

bool is_wanted(const Environment& of_rank) {
  std::vector<std::string> warnings;  // warnings are ignored here, because the ranks print them, and refuse malformed
                                      // values
  auto config = Config::from(of_rank, warnings);
  if (config && !config->pmi_bridge) return false;
  if (of_rank.has("PMI_FD") || of_rank.has("PMI_PORT")) return false;
  return of_rank.has("PMIX_NAMESPACE") || of_rank.has("HOROVOD_LOCAL_STORE") ||
         of_rank.has("HOROVOD_GLOO_RENDEZVOUS_ADDR");
}

bool bears_it(const std::string& program) {
  if (std::find(std::begin(container_runtimes), std::end(container_runtimes), name_in(program)) !=
      std::end(container_runtimes))
    return false;
  static const auto ours = posix::read_program_file("/proc/self/exe");
  auto theirs = posix::read_program_file(program);
  if (!ours || !theirs || theirs->loader.empty() || theirs->loader != ours->loader) return false;
  return std::none_of(theirs->libraries.begin(), theirs->libraries.end(), [](const std::string& library) {
    return std::any_of(std::begin(sanitizers), std::end(sanitizers),
                       [&](std::string_view sanitizer) { return library.starts_with(sanitizer); });
  });
}

}  // namespace

std::optional<std::string> preload_with_bridge(const std::string& program, const Environment& of_rank) {
  if (!is_wanted(of_rank)) return std::nullopt;
  std::error_code missing;
  std::string bridge = std::filesystem::canonical(posix::plugin_path("pmi_bridge", of_rank), missing);
  // The loader takes blanks and colons in LD_PRELOAD for the end of a name.
  if (missing || bridge.find_first_of(" :") != std::string::npos) return std::nullopt;
  std::string preloaded = of_rank.get("LD_PRELOAD").value_or("");
  if (preloaded.find("libhorovod_pmi_bridge.so") != std::string::npos || !bears_it(program)) return std::nullopt;
  return preloaded.empty() ? bridge : preloaded + ":" + bridge;
}

}  // namespace hvd::launcher
