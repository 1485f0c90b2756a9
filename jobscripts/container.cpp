#include "jobscripts/container.hpp"

#include <optional>

namespace hvd::jobscripts {

namespace {

// How the words of a runtime show a folder of the host.
struct Runtime {
  std::string_view name;
  const char* bind;
  bool needs_target;         // takes no source alone
  bool passes_on_variables;  // those of the host are seen in the image
};
constexpr Runtime runtimes[] = {
    {"apptainer", "--bind", false, true},
    {"singularity", "--bind", false, true},
    {"podman-hpc", "--volume", true, false},
};

std::optional<Runtime> runtime_of(std::string_view wrapper) {
  std::string_view program = wrapper.substr(0, wrapper.find(' '));
  program.remove_prefix(program.rfind('/') == std::string_view::npos ? 0 : program.rfind('/') + 1);
  for (const Runtime& runtime : runtimes)
    if (runtime.name == program) return runtime;
  return std::nullopt;
}

std::string bind_word(const Runtime& runtime, const std::string& bind) {
  const bool has_target = bind.find(':') != std::string::npos;
  return std::string(" ") + runtime.bind + " " + quoted(runtime.needs_target && !has_target ? bind + ":" + bind : bind);
}

}  // namespace

Result<std::string> container_words(const Site& site, const ScriptRequest& request, bool has_gpus,
                                    const std::vector<std::string>& exports) {
  if (request.container.empty()) return std::string();
  std::string words = site.get("container");
  if (words.empty()) words = has_gpus ? "apptainer exec --nv" : "apptainer exec";
  std::vector<std::string> binds = request.container_binds;
  if (!request.container_mpi.empty()) {
    binds.push_back(request.container_mpi + ":/host/mpi");
    binds.push_back(request.container_mpi);  // MPI's libraries may name each other by their path
  }
  auto runtime = runtime_of(words);
  if (!runtime && !binds.empty())
    return Error(ErrorCode::invalid_argument,
                 "--container-bind, --container-mpi: expected a site whose 'container' begins with apptainer, "
                 "singularity or podman-hpc, found '" +
                     words + "': write the binds into that line of the site's file");
  if (request.container_mpi.empty()) {
    if (std::string of_site = site.get("container_mpi"); !of_site.empty()) words += " " + of_site;
  }
  for (const std::string& bind : binds) words += bind_word(*runtime, bind);
  if (runtime && !runtime->passes_on_variables)
    for (const std::string& line : exports) words += " --env " + line.substr(0, line.find('='));
  return words + " " + quoted(request.container);
}

}  // namespace hvd::jobscripts
