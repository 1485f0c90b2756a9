#include "launcher/agent/rank_in_image.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>

#include "launcher/agent/bridge_preload.hpp"
#include "launcher/agent/container_runtime.hpp"
#include "native/posix/plugins/plugin.hpp"
#include "native/posix/processes/ask_program.hpp"
#include "native/posix/processes/process.hpp"

namespace hvd::launcher {
namespace {

constexpr const char* bridge_file = "libhorovod_pmi_bridge.so";
constexpr int not_executable = 126;

// It may take long to open an image on a busy file system.
constexpr auto answer_time = std::chrono::seconds(120);

int complain(const std::string& message, int code) {
  std::fprintf(stderr, "horovodrun: %s\n", message.c_str());
  return code;
}

int become(const std::vector<std::string>& command, const Environment& environment) {
  std::vector<std::string> entries;
  entries.reserve(environment.variables().size());
  for (const auto& [name, value] : environment.variables()) entries.push_back(name + "=" + value);
  auto pointers = [](const std::vector<std::string>& words) {
    std::vector<char*> all;
    all.reserve(words.size() + 1);
    for (const std::string& word : words) all.push_back(const_cast<char*>(word.c_str()));
    all.push_back(nullptr);
    return all;
  };
  ::execve(command[0].c_str(), pointers(command).data(), pointers(entries).data());
  return complain(system_error(command[0] + " cannot be started", errno).message, not_executable);
}

// Removes the host's bridge. Inside the image there is another bridge, at another place.
void drop_bridge_of_the_host(Environment& environment) {
  const std::string all = environment.get("LD_PRELOAD").value_or("");
  std::string kept;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find_first_of(": ", at), all.size());
    const std::string one = all.substr(at, end - at);
    if (!one.empty() && !one.ends_with(bridge_file)) kept += (kept.empty() ? "" : ":") + one;
    at = end + 1;
  }
  if (kept.empty()) environment.erase("LD_PRELOAD");
  else environment.set("LD_PRELOAD", std::move(kept));
}

// Returns the last line that looks like a release. Runtimes may write lines of their own.
std::string release_in(const std::string& answer) {
  std::string found;
  for (std::size_t at = 0; at < answer.size();) {
    const std::size_t end = std::min(answer.find('\n', at), answer.size());
    const std::string line = answer.substr(at, end - at);
    if (!line.empty() && line.find_first_not_of("0123456789.") == std::string::npos) found = line;
    at = end + 1;
  }
  return found;
}

Error other_release(const std::string& image, const std::string& found) {
  const std::string ours = posix::plugin_stamp(0).version;
  return Error(ErrorCode::unsupported, "the image " + image + " has Horovod " + found + ", horovodrun is of " + ours +
                                           ": build the image from this release, or start with a horovodrun of " +
                                           found);
}

}  // namespace

std::vector<std::string> in_image(const Image& image, const std::string& horovodrun,
                                  const std::vector<std::string>& command) {
  std::vector<std::string> words{horovodrun, outside_of_image_flag, image.word};
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

Status check_image(const Image& image, const Environment& environment) {
  HostView host = host_view();
  host.folder = "/";  // the question needs no folder of the host
  auto question = command_in_image(image, {"horovodrun", "--version"}, environment, host);
  if (!question) return question.error();
  const std::string answer = posix::answer_of(*question, answer_time);
  const std::string release = release_in(answer);
  if (release == posix::plugin_stamp(0).version) return {};
  if (!release.empty()) return other_release(image.word, release);
  return Error(ErrorCode::unsupported, "the image " + image.word + " has no Horovod: its horovodrun --version said '" +
                                           answer.substr(0, 500) + "'; containers/ has definitions of images with it");
}

int run_outside_of_image(char** arguments) {
  Environment environment = Environment::of_this_process();
  drop_bridge_of_the_host(environment);
  auto image = find_image(arguments[0]);
  if (!image) return complain(image.error().message, not_executable);
  std::vector<std::string> command{"horovodrun", inside_of_image_flag, posix::plugin_stamp(0).version};
  for (char** word = arguments + 1; *word != nullptr; ++word) command.emplace_back(*word);
  auto all = command_in_image(*image, command, environment, host_view());
  if (!all) return complain(all.error().message, not_executable);
  return become(*all, environment);
}

int run_inside_of_image(char** arguments) {
  Environment environment = Environment::of_this_process();
  const std::string image = environment.get("HOROVOD_CONTAINER").value_or("");
  const std::string release = posix::plugin_stamp(0).version;
  if (release != arguments[0])
    return complain("the image " + image + " has Horovod " + release + ", horovodrun is of " + arguments[0],
                    not_executable);
  std::vector<std::string> command;
  for (char** word = arguments + 1; *word != nullptr; ++word) command.emplace_back(*word);
  int code = 0;
  auto program = posix::find_program(command[0], posix::search_path(environment), code);
  if (!program) return complain("in the image " + image + ": " + program.error().message, code);
  // Runtimes without privileges give each rank a user namespace of its own. Then no rank may open what UCX, below an
  // MPI, shares by way of /proc. All ranks may open it by its name in /dev/shm.
  if (!environment.has("UCX_POSIX_USE_PROC_LINK")) environment.set("UCX_POSIX_USE_PROC_LINK", "n");
  if (auto preloaded = preload_with_bridge(*program, environment)) environment.set("LD_PRELOAD", *preloaded);
  command[0] = *program;
  return become(command, environment);
}

}  // namespace hvd::launcher
