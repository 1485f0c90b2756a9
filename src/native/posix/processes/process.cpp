#include "native/posix/processes/process.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/text/number.hpp"
#include "native/posix/files/file_descriptor.hpp"
#include "native/posix/processes/process_end.hpp"

// Headers of older kernels lack these numbers. They are the same on all processors.
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif

namespace hvd::posix {
namespace {

struct Stat {
  pid_t parent = 0;
  pid_t group = 0;
  std::uint64_t began = 0;
  char state = '?';
  int threads = 0;
};

std::optional<Stat> read_stat(pid_t process) {
  char path[48];
  std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(process));
  FileDescriptor file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  char text[512];
  ssize_t size = ::read(file.get(), text, sizeof text - 1);
  if (size <= 0) return std::nullopt;
  text[size] = '\0';
  // The line is "pid (name) state ppid pgrp …". The name may contain any letters, so the last parenthesis ends it.
  const char* after_name = std::strrchr(text, ')');
  Stat stat;
  int parent = 0, group = 0;
  unsigned long long began = 0;  // this field is the 22nd
  if (after_name == nullptr ||
      std::sscanf(after_name + 1, " %c %d %d%*d%*d%*d%*u%*u%*u%*u%*u%*u%*u%*d%*d%*d%*d%d%*d%llu", &stat.state, &parent,
                  &group, &stat.threads, &began) != 5)
    return std::nullopt;
  stat.began = began;
  stat.parent = parent;
  stat.group = group;
  return stat;
}

}  // namespace

void fill_standard_descriptors() {
  for (;;) {
    int descriptor = ::open("/dev/null", O_RDWR);  // the copy gets the lowest number that is free
    if (descriptor >= 0 && descriptor <= STDERR_FILENO) continue;
    if (descriptor >= 0) ::close(descriptor);
    return;
  }
}

DescriptorLimit descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  return {limit.rlim_cur, limit.rlim_max};
}

void set_descriptor_limit(const DescriptorLimit& limit) {
  rlimit wanted{limit.soft, limit.hard};
  if (limit.hard > 0) ::setrlimit(RLIMIT_NOFILE, &wanted);
}

void close_descriptors(unsigned first, unsigned last) {
  // glibc has a function for this only since 2.34.
  if (::syscall(SYS_close_range, first, last, 0) != 0) close_descriptors_one_by_one(first, last);
}

void close_descriptors_one_by_one(unsigned first, unsigned last) {
  std::vector<unsigned> open;
  if (DIR* list = ::opendir("/proc/self/fd")) {
    while (const dirent* entry = ::readdir(list))  // NOLINT(concurrency-mt-unsafe): the folder is ours alone
      if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9')
        open.push_back(number_in<unsigned>(entry->d_name).value_or(0));
    ::closedir(list);  // this folder's own descriptor is in the list, and is closed below
  } else {
    auto most = static_cast<unsigned>(std::min<std::uint64_t>(descriptor_limit().soft, 1u << 20));
    for (unsigned descriptor = first; descriptor < most && descriptor <= last; ++descriptor) open.push_back(descriptor);
  }
  for (unsigned descriptor : open)
    if (descriptor >= first && descriptor <= last) ::close(static_cast<int>(descriptor));
}

Status become_subreaper() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) return system_error("prctl(PR_SET_CHILD_SUBREAPER)", errno);
  return {};
}

bool die_with_parent(int signal, pid_t expected_parent) {
  ::prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0);
  return ::getppid() == expected_parent;
}

std::optional<pid_t> parent_of(pid_t process) {
  auto stat = read_stat(process);
  return stat ? std::optional(stat->parent) : std::nullopt;
}

std::optional<std::uint64_t> began_at(pid_t process) {
  std::error_code failed;
  if (std::filesystem::read_symlink("/proc/self", failed) != std::to_string(::getpid())) return std::nullopt;
  auto stat = read_stat(process);
  return stat ? std::optional(stat->began) : std::nullopt;
}

bool is_zombie(pid_t process) {
  auto stat = read_stat(process);
  return stat && (stat->state == 'Z' || stat->state == 'X') && stat->threads <= 1;
}

double age_of_this_process() {
  timespec now{};
  const auto began = began_at(::getpid());
  if (!began || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  const double age = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9 -
                     static_cast<double>(*began) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return std::max(age, 0.0);
}

std::string process_space() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat space {};
  if (::stat("/proc/self/ns/pid", &space) == 0) boot += "/" + std::to_string(space.st_ino);
  return boot;
}

std::vector<Descendant> descendants_of(pid_t ancestor) {
  // Reads all of /proc once, because not every kernel has /proc/PID/task/*/children.
  std::multimap<pid_t, Descendant> by_parent;
  DIR* processes = ::opendir("/proc");
  if (processes == nullptr) return {};
  while (const dirent* entry = ::readdir(processes)) {  // NOLINT(concurrency-mt-unsafe): the folder is ours alone
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    pid_t process = number_in<pid_t>(entry->d_name).value_or(0);
    if (auto stat = read_stat(process)) by_parent.emplace(stat->parent, Descendant{process, stat->parent, stat->group});
  }
  ::closedir(processes);
  std::vector<Descendant> found;
  auto add_children_of = [&](pid_t parent) {
    auto [first, last] = by_parent.equal_range(parent);
    for (; first != last; ++first) found.push_back(first->second);
    by_parent.erase(parent);
  };
  add_children_of(ancestor);
  for (std::size_t at = 0; at < found.size(); ++at) add_children_of(found[at].process);
  return found;
}

bool has_thread(pid_t process, std::string_view name) {
  const std::string folder = "/proc/" + std::to_string(process) + "/task";
  std::error_code failed;
  for (std::filesystem::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    std::string found;
    std::getline(std::ifstream(it->path() / "comm"), found);
    if (found == name) return true;
  }
  return false;
}

void signal_descendant(const Descendant& descendant, int signal) {
  FileDescriptor handle = handle_of_process(descendant.process);
  if (!handle) {
    // Kernels before 5.3 have no such handles. There the check below makes the risk smaller but does not remove it.
    if (errno != ENOSYS && errno != EPERM) return;
  }
  // The handle pins the process: if it still is the process that was seen, the signal cannot reach another one. The
  // parent is not compared, because the parent of an orphan changes.
  auto stat = read_stat(descendant.process);
  if (!stat) return;
  if (stat->parent != descendant.parent && stat->group != descendant.group && stat->parent != ::getpid()) return;
  if (handle) ::syscall(SYS_pidfd_send_signal, handle.get(), signal, nullptr, 0);
  else ::kill(descendant.process, signal);
}

bool has_children() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

namespace {

// Returns 0 if the file can be executed; else the exit code that a shell would give.
int executability(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return errno == EACCES ? 126 : 127;
  return S_ISREG(status.st_mode) && ::access(path.c_str(), X_OK) == 0 ? 0 : 126;
}

// Describes what the user may have meant by a command that does not exist. `program` has no folder.
std::string likely_meaning(const std::string& program) {
  struct stat status {};
  if (!program.empty() && ::stat(program.c_str(), &status) == 0 && S_ISREG(status.st_mode))
    return "; the file of that name in this folder is started by ./" + program + ", or by its interpreter (python " +
           program + ")";
  auto equals = program.find('='), blank = program.find(' ');
  if (equals != std::string::npos && equals > 0 && blank > equals)
    return "; variables for the command are set before horovodrun, or by env: env " + program + " command";
  if (blank != std::string::npos) return "; give the words of a command without quotes around all of them";
  return "";
}

}  // namespace

std::string search_path(const Environment& environment) {
  return environment.get("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
}

Result<std::string> find_program(const std::string& program, const std::string& path, int& exit_code) {
  exit_code = 127;
  std::string refused;
  if (program.find('/') != std::string::npos) {
    exit_code = executability(program);
    if (exit_code == 0) return program;
    if (exit_code == 126) refused = program;
  } else if (!program.empty()) {
    for (std::size_t at = 0; at <= path.size();) {
      std::size_t end = std::min(path.find(':', at), path.size());
      std::string folder = path.substr(at, end - at);
      std::string candidate = (folder.empty() ? "." : folder) + "/" + program;
      int code = executability(candidate);
      if (code == 0) {
        exit_code = 0;
        return candidate;
      }
      if (code == 126 && refused.empty()) refused = candidate;
      at = end + 1;
    }
    exit_code = refused.empty() ? 127 : 126;
  }
  if (exit_code == 126)
    return Error(ErrorCode::invalid_argument,
                 refused + " is there but cannot be executed (is it a program, and has it the x permission?" +
                     (refused.ends_with(".py") ? " Python programs: python " + refused : "") + ")");
  return Error(ErrorCode::invalid_argument,
               "the command '" + program + "' does not exist" +
                   (program.find('/') == std::string::npos ? " in any folder of PATH" + likely_meaning(program) : ""));
}

}  // namespace hvd::posix
