#include "launcher/staging/staged_rank.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/settings/environment.hpp"
#include "launcher/agent/bridge_preload.hpp"
#include "launcher/staging/environments.hpp"
#include "native/posix/machine/host_identity.hpp"
#include "native/posix/processes/process.hpp"

namespace hvd::launcher::staging {
namespace {

int complain(const std::string& message, int code) {
  std::fprintf(stderr, "horovodrun: %s: %s\n", posix::host_name().c_str(), message.c_str());
  return code;
}

// Does the same as bin/activate of venv or conda, except for the prompt and the scripts in etc/conda/activate.d.
void activate(const std::string& prefix) {
  // NOLINTBEGIN(concurrency-mt-unsafe): there is a single thread
  ::setenv("PATH", (prefix + "/bin:" + posix::search_path(Environment::of_this_process())).c_str(), 1);
  const bool is_conda = ::access((prefix + "/conda-meta").c_str(), F_OK) == 0;
  ::setenv(is_conda ? "CONDA_PREFIX" : "VIRTUAL_ENV", prefix.c_str(), 1);
  ::unsetenv(is_conda ? "VIRTUAL_ENV" : "CONDA_PREFIX");
  ::unsetenv("PYTHONHOME");
  // NOLINTEND(concurrency-mt-unsafe)
}

}  // namespace

std::vector<std::string> in_staged_environment(const std::string& horovodrun, const std::string& digest,
                                               const std::string& parent, const std::vector<std::string>& command) {
  std::vector<std::string> words = {horovodrun, staged_rank_flag, digest, parent.empty() ? "-" : parent};
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

std::size_t words_of_staging(const std::vector<std::string>& command) {
  return command.size() > 4 && command[1] == staged_rank_flag ? 4 : 0;
}

int run_staged_rank(char** arguments) {
  constexpr int not_executable = 126;
  const Environment own = Environment::of_this_process();
  const std::string digest = arguments[0], parent = std::string_view(arguments[1]) == "-" ? "" : arguments[1];
  auto environments = Environments::in(parent, own.get("TMPDIR").value_or("/tmp"));
  if (!environments) return complain(environments.error().message, not_executable);
  auto kept = environments->use(digest);
  if (!kept)
    return complain("the staged environment " + environments->folder() + "/" + digest +
                        " is not there any more: something has removed it since the start of the job",
                    not_executable);
  ::fcntl(kept->lock.release(), F_SETFD, 0);  // the program keeps the lock until it ends
  activate(kept->prefix);
  char** command = arguments + 2;
  const Environment environment = Environment::of_this_process();
  int code = 0;
  auto program = posix::find_program(command[0], posix::search_path(environment), code);
  if (!program) return complain(program.error().message, code);
  if (auto preloaded = preload_with_bridge(*program, environment))
    ::setenv("LD_PRELOAD", preloaded->c_str(), 1);  // NOLINT(concurrency-mt-unsafe): there is a single thread
  ::execvp(command[0], command);
  return complain(system_error(*program + " cannot be executed", errno).message, not_executable);
}

}  // namespace hvd::launcher::staging
