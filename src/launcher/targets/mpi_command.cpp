#include "launcher/targets/mpi_command.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/text/number.hpp"
#include "launcher/targets/dialects.hpp"
#include "native/posix/processes/ask_program.hpp"
#include "native/posix/processes/process.hpp"

namespace hvd::launcher {
namespace {

using bootstrap::Launcher;
using Words = std::vector<std::string>;

void append(Words& to, const Words& words) {
  to.insert(to.end(), words.begin(), words.end());
}

std::string hosts_with_slots(const std::vector<HostSlots>& hosts) {
  std::string text;
  for (const HostSlots& host : hosts) text += (text.empty() ? "" : ",") + host.host + ":" + std::to_string(host.slots);
  return text;
}

// Returns the options of ssh as one text. The launcher splits this text by itself.
std::string ssh_options(const MpiexecOptions& options) {
  std::string text;
  if (!options.ssh_port.empty()) text = "-p " + options.ssh_port;
  if (!options.ssh_identity_file.empty()) text += (text.empty() ? "-i " : " -i ") + options.ssh_identity_file;
  return text;
}

Result<SiteLauncher> hydra_command(const MpiProgram& program, const MpiexecOptions& options) {
  if (!ssh_options(options).empty())
    return Error(ErrorCode::unsupported, program.path + " (" + program.says +
                                             ") takes no ssh port or key: put them into ~/.ssh/config instead of "
                                             "--ssh-port and --ssh-identity-file");
  if (options.interfaces.find(',') != std::string::npos)
    return Error(ErrorCode::invalid_argument,
                 "--network-interfaces " + options.interfaces + ": " + program.path + " takes a single one");
  SiteLauncher site;
  site.launcher = program.launcher;
  site.dialect = &dialect_of_hydra;
  site.command = {program.path, "-n", std::to_string(options.ranks), "-prepend-rank"};
  if (!options.ssh.empty()) append(site.command, {"-launcher", "ssh", "-launcher-exec", options.ssh});
  if (!options.interfaces.empty()) append(site.command, {"-iface", options.interfaces});
  if (!options.hosts.empty()) {
    append(site.command, {program.launcher == Launcher::intel_mpi ? "-machinefile" : "-f", host_file_word});
    for (const HostSlots& host : options.hosts) site.host_file += host.host + ":" + std::to_string(host.slots) + "\n";
  }
  append(site.command, options.binding);
  return site;
}

// Returns a value for PRTE_PREFIX. A PRRTE that is not installed where it was built for (a wheel) does not find the
// texts by which it tells who failed; PRTE_PREFIX tells it where they are. PMIX_PREFIX would do so, too, but would
// mislead a libpmix of the ranks.
std::string prefix_of_texts(const MpiProgram& program, const MpiexecOptions& options) {
  std::string prefix = std::filesystem::path(program.path).parent_path().parent_path();
  for (std::size_t at = 0; at + 1 < options.more.size(); ++at)
    if (options.more[at] == "--prefix") prefix = options.more[at + 1];
  return ::access((prefix + "/share/prte/help-prun.txt").c_str(), R_OK) == 0 ? prefix : "";
}

SiteLauncher open_mpi_command(const MpiProgram& program, const MpiexecOptions& options) {
  bool is_new = program.launcher == Launcher::prrte;
  const char* parameter = is_new ? "--prtemca" : "--mca";
  SiteLauncher site;
  site.launcher = program.launcher;
  site.dialect = is_new ? &dialect_of_prrte : &dialect_of_open_mpi;
  site.command = {program.path};
  if (options.is_root) append(site.command, {"--allow-run-as-root"});
  append(site.command, is_new ? Words{"--output", "tag"} : Words{"--tag-output"});
  append(site.command, {"-np", std::to_string(options.ranks)});
  if (!options.hosts.empty()) append(site.command, {"-H", hosts_with_slots(options.hosts)});
  append(site.command, options.binding.empty() ? Words{"--bind-to", "none", "--map-by", "slot"} : options.binding);
  if (!options.ssh.empty())
    append(site.command, {parameter, is_new ? "plm_ssh_agent" : "plm_rsh_agent", options.ssh, parameter, "plm",
                          is_new ? "ssh" : "rsh"});
  if (std::string of_ssh = ssh_options(options); !of_ssh.empty())
    append(site.command, {parameter, is_new ? "plm_ssh_args" : "plm_rsh_args", of_ssh});
  if (!options.interfaces.empty())
    append(site.command, {"--mca", "btl_tcp_if_include", options.interfaces, parameter,
                          is_new ? "prte_if_include" : "oob_tcp_if_include", options.interfaces});
  for (const std::string& name : options.exported) append(site.command, {"-x", name});
  if (std::string prefix = is_new ? prefix_of_texts(program, options) : ""; !prefix.empty())
    site.set["PRTE_PREFIX"] = prefix;
  return site;
}

}  // namespace

std::optional<Launcher> launcher_that_says(std::string_view version) {
  auto is = [&](Launcher launcher) {
    return std::ranges::any_of(bootstrap::row_of(launcher).says,
                               [&](const char* word) { return version.find(word) != std::string_view::npos; });
  };
  for (Launcher each : {Launcher::intel_mpi, Launcher::hydra, Launcher::prrte})
    if (is(each)) return each;
  if (!is(Launcher::open_mpi)) return std::nullopt;
  // In "mpirun (Open MPI) 5.0.11" the number decides: from 5 on it is PRRTE's mpirun.
  constexpr std::string_view name = "(Open MPI) ";
  std::size_t at = version.find(name);
  if (at == std::string_view::npos) return Launcher::open_mpi;
  return leading_number<int>(version.substr(at + name.size())).value_or(5) < 5 ? Launcher::open_mpi : Launcher::prrte;
}

Result<MpiProgram> find_mpiexec(const Environment& environment) {
  std::string path = posix::search_path(environment);
  std::string wanted = environment.get("HOROVOD_MPIEXEC").value_or("");
  Words names = {wanted};
  if (wanted.empty()) {
    names = {"mpiexec", "mpirun"};
    for (Launcher each : {Launcher::hydra, Launcher::open_mpi, Launcher::prrte})
      names.emplace_back(bootstrap::row_of(each).program);
  }
  std::string found;
  for (const std::string& name : names) {
    int code = 0;
    auto program = posix::find_program(name, path, code);
    if (!program) continue;
    std::string version = posix::answer_of({*program, "--version"}, std::chrono::seconds(20));
    auto launcher = launcher_that_says(version);
    std::size_t begin = std::min(version.find_first_not_of("\n -"), version.size());
    std::string says = version.substr(begin, version.find('\n', begin) - begin);
    if (launcher) return MpiProgram{*program, *launcher, says};
    found += (found.empty() ? "" : "; ") + *program + " says \"" + says + "\"";
  }
  if (!wanted.empty() && found.empty())
    return Error(ErrorCode::invalid_argument, "HOROVOD_MPIEXEC=" + wanted + " is not there, or not along PATH");
  return Error(ErrorCode::unsupported,
               "--mpi wants the launcher of an MPI, but along PATH there is no mpiexec or mpirun of MPICH, Intel MPI, "
               "Open MPI or PRRTE" +
                   (found.empty() ? std::string() : " (" + found + ")") +
                   ": load the site's MPI module, set HOROVOD_MPIEXEC, or leave --mpi out");
}

Result<SiteLauncher> mpi_command(const MpiProgram& program, const MpiexecOptions& options) {
  bool is_hydra = program.launcher == Launcher::hydra || program.launcher == Launcher::intel_mpi;
  auto site = is_hydra ? hydra_command(program, options) : Result<SiteLauncher>(open_mpi_command(program, options));
  if (!site) return site;
  append(site->command, options.more);
  append(site->command, options.command);
  return site;
}

std::vector<std::string> split_words(std::string_view text) {
  Words words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    char letter = text[at];
    if (quote != 0) {
      if (letter == quote) quote = 0;
      else word += letter;
    } else if (letter == '\'' || letter == '"') {
      quote = letter;
      in_word = true;
    } else if (letter == '\\' && at + 1 < text.size()) {
      word += text[++at];
      in_word = true;
    } else if (letter == ' ' || letter == '\t' || letter == '\n') {
      if (in_word) words.push_back(std::exchange(word, {}));
      in_word = false;
    } else {
      word += letter;
      in_word = true;
    }
  }
  if (in_word) words.push_back(word);
  return words;
}

}  // namespace hvd::launcher
