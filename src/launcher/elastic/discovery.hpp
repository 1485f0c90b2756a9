#pragma once
// Finds the hosts of an elastic job. The hosts are fixed (-H, a host file, the scheduler's job), or a script lists them
// each time it is run (--host-discovery-script).
#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.hpp"
#include "base/result.hpp"
#include "launcher/options/hosts.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::launcher {

// Reads what a script has printed: a line "host:slots" or "host" for each host. Empty lines are ignored, and equal
// lines count once. `slots_per_host` is for lines without slots. Fails, naming the line, on anything else, and if a
// host is named twice with different slots.
Result<std::vector<HostSlots>> read_found_hosts(std::string_view text, std::optional<int> slots_per_host);

// Runs without a thread: its owner polls the descriptors, or sleeps no longer than left(), and then calls look().
class Discovery {
 public:
  struct Script {
    std::string command;                                         // for the shell: --host-discovery-script
    std::optional<int> slots_per_host{};                         // --slots-per-host
    std::chrono::milliseconds limit = std::chrono::seconds(60);  // for one run; then it is killed
    std::chrono::milliseconds pause = std::chrono::seconds(1);   // from one run to the next
  };
  // The hosts are found once.
  explicit Discovery(std::vector<HostSlots> fixed) : fixed_(std::move(fixed)) {}
  explicit Discovery(Script script) : script_(std::move(script)) {}
  Discovery(const Discovery&) = delete;
  Discovery& operator=(const Discovery&) = delete;
  ~Discovery();  // kills a script that runs

  // Begins a run if one is due, and returns what a run has found when it has ended, or why it has failed.
  std::optional<Result<std::vector<HostSlots>>> look();

  bool is_running() const { return child_ > 0; }
  std::vector<pollfd> wanted() const;      // what look() waits for
  std::chrono::milliseconds left() const;  // look() is to be called after this time at the latest

 private:
  using Found = Result<std::vector<HostSlots>>;
  Status begin();
  void read();
  std::optional<int> reap();
  Found conclude(int wait_status);
  void kill();
  void bury(Deadline deadline);
  Error failure(const std::string& how) const;

  std::optional<std::vector<HostSlots>> fixed_;
  std::optional<Script> script_;
  pid_t child_ = -1;
  std::vector<pid_t> killed_;  // whose end was not seen yet
  posix::FileDescriptor output_, errors_;
  std::string printed_, complaints_;
  Deadline next_ = Deadline::after(std::chrono::milliseconds(0));  // of the next run, or of the end of this one
};

}  // namespace hvd::launcher
