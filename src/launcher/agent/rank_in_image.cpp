#include "launcher/agent/rank_in_image.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "launcher/agent/bridge_preload.hpp"
#include "launcher/agent/container_runtime.hpp"
#include "native/posix/ask_program.hpp"
#include "native/posix/plugin.hpp"
#include "native/posix/process.hpp"

namespace hvd::launcher {
namespace {

constexpr const char* bridge_file = "libhorovod_pmi_bridge.so";
constexpr int not_executable = 126;

// An image on a busy file system may take its time to be opened.
constexpr auto answer_time = std::chrono::seconds(120);

int complain(const std::string& message, int code) {
  std::fprintf(stderr, "horovodrun: %s\n", message.c_str());
  return code;
}

int become(const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  const int error = errno;
  return complain(command[0] + " cannot be started: " + std::strerror(error), error == ENOENT ? 127 : not_executable);
}

// Inside there is another bridge, at another place.
void drop_bridge_of_the_host() {
  const char* preloaded = std::getenv("LD_PRELOAD");
  if (preloaded == nullptr) return;
  std::string kept;
  const std::string_view all = preloaded;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find_first_of(": ", at), all.size());
    const std::string_view one = all.substr(at, end - at);
    if (!one.empty() && !one.ends_with(bridge_file)) kept += (kept.empty() ? "" : ":") + std::string(one);
    at = end + 1;
  }
  if (kept.empty()) ::unsetenv("LD_PRELOAD");
  else ::setenv("LD_PRELOAD", kept.c_str(), 1);
}

// The last line that looks like a release; runtimes may write something of their own.
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
  auto question = command_in_image(image, {"horovodrun", "--version"}, environment, host_view());
  if (!question) return question.error();
  const std::string answer = posix::answer_of(*question, answer_time);
  const std::string release = release_in(answer);
  if (release == posix::plugin_stamp(0).version) return {};
  if (!release.empty()) return other_release(image.word, release);
  return Error(ErrorCode::unsupported, "the image " + image.word + " has no Horovod: its horovodrun --version said '" +
                                           answer.substr(0, 500) + "'; containers/ has definitions of images with it");
}

int run_outside_of_image(char** arguments) {
  drop_bridge_of_the_host();
  auto image = find_image(arguments[0]);
  if (!image) return complain(image.error().message, not_executable);
  std::vector<std::string> command{"horovodrun", inside_of_image_flag, posix::plugin_stamp(0).version};
  for (char** word = arguments + 1; *word != nullptr; ++word) command.emplace_back(*word);
  auto all = command_in_image(*image, command, Environment::of_this_process(), host_view());
  if (!all) return complain(all.error().message, not_executable);
  return become(*all);
}

int run_inside_of_image(char** arguments) {
  const Environment environment = Environment::of_this_process();
  const std::string image = environment.get("HOROVOD_CONTAINER").value_or("");
  const std::string release = posix::plugin_stamp(0).version;
  if (release != arguments[0])
    return complain("the image " + image + " has Horovod " + release + ", horovodrun is of " + arguments[0],
                    not_executable);
  std::vector<std::string> command;
  for (char** word = arguments + 1; *word != nullptr; ++word) command.emplace_back(*word);
  int code = 0;
  auto program = posix::find_program(command[0], environment.get("PATH").value_or("/usr/bin:/bin"), code);
  if (!program) return complain("in the image " + image + ": " + program.error().message, code);
  if (auto preloaded = preload_with_bridge(*program, environment)) ::setenv("LD_PRELOAD", preloaded->c_str(), 1);
  command[0] = *program;
  return become(command);
}

}  // namespace hvd::launcher
