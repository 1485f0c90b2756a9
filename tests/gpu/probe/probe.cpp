// Asks a GPU, its driver and NCCL what the design needs to know.
//
//  usage: probe REPORT             asks what REPORT does not answer yet, each in a process of its own
//         probe --question NAME    asks one question, and prints its lines
//
// A line of the report is `name value unit`. A question ends with the line `asked.NAME seconds s`, also if it hung: the
// line `hung.NAME` is then before it. So an interrupted probe goes on where it was. All ends within seven minutes.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "driver.hpp"
#include "questions.hpp"

namespace probe {

namespace {

constexpr double most_seconds = 390;

std::string contents(const std::string& file) {
  std::ifstream from(file);
  std::stringstream text;
  text << from.rdbuf();
  return text.str();
}

// Some questions load the driver in their children only.
bool forks_first(const std::string& name) {
  return name == "kill" || name == "nccl_shared" || name.ends_with("faked_hosts") || name == "processes" ||
         name == "mps";
}

int ask(const std::string& name) {
  for (const Question& question : questions) {
    if (name != question.name) continue;
    if (!forks_first(name)) {
      if (const std::string why = driver().load(); !why.empty()) {
        std::fprintf(stderr, "no GPU: %s\n", why.c_str());
        return 3;
      }
    }
    question.ask();
    return 0;
  }
  std::fprintf(stderr, "there is no question '%s'\n", name.c_str());
  return 2;
}

// Runs the question in a process group of its own, which is killed when its time is over.
void ask_in_process(const std::string& program, const Question& question, const std::string& report) {
  const auto begin = Clock::now();
  const pid_t child = ::fork();
  if (child == 0) {
    ::setpgid(0, 0);
    const int file = ::open(report.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    ::dup2(file, STDOUT_FILENO);
    ::execl(program.c_str(), program.c_str(), "--question", question.name, nullptr);
    ::_exit(127);
  }
  ::setpgid(child, child);
  int status = 0;
  bool has_ended = false;
  while (!has_ended && microseconds_since(begin) < question.seconds * 1e6) {
    has_ended = ::waitpid(child, &status, WNOHANG) == child;
    if (!has_ended) ::usleep(20000);
  }
  ::kill(-child, SIGKILL);  // also what the question has started
  std::ofstream to(report, std::ios::app);
  if (!has_ended) {
    // A process that the driver does not let go stays behind. The probe does not wait for it.
    to << "hung." << question.name << " " << question.seconds << " s\n";
  } else if (status != 0) {
    to << "failed." << question.name << " " << status << " status\n";
  }
  to << "asked." << question.name << " " << microseconds_since(begin) / 1e6 << " s\n";
}

int ask_all(const std::string& program, const std::string& report) {
  // In a process of its own, because later ones fork before they load the driver.
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string why = driver().load();
    if (!why.empty()) std::printf("no GPU: %s\n", why.c_str());
    std::fflush(stdout);
    ::_exit(why.empty() ? 0 : 3);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status != 0) return 3;
  ::setenv("PROBE_FOLDER", std::filesystem::path(program).parent_path().c_str(), 1);
  const auto begin = Clock::now();
  const std::string answered = contents(report);
  for (const Question& question : questions) {
    if (("\n" + answered).find("\nasked." + std::string(question.name) + " ") != std::string::npos) continue;
    if (microseconds_since(begin) / 1e6 + question.seconds > most_seconds) {
      std::printf("time is up: run the probe once more for '%s'\n", question.name);
      return 4;
    }
    std::printf("%s ...\n", question.name);
    std::fflush(stdout);
    ask_in_process(program, question, report);
  }
  std::printf("all is answered in %s\n", report.c_str());
  return 0;
}

}  // namespace

}  // namespace probe

int main(int count, char** arguments) {
  if (count == 3 && std::strcmp(arguments[1], "--question") == 0) return probe::ask(arguments[2]);
  if (count == 2 && arguments[1][0] != '-')
    return probe::ask_all(std::filesystem::canonical("/proc/self/exe"), arguments[1]);
  std::fprintf(stderr, "usage: probe REPORT\n");
  return 2;
}
