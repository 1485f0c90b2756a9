#pragma once
// The right to write a checkpoint: a file next to the checkpoint names the one process that has it. flock is not used,
// because parallel file systems may grant it to every process or refuse it.
//
//  1. The holder has made the file by link(); of several processes only one succeeds. It renews the file every few
//     seconds.
//  2. A process that finds the file of another holder is refused, and the error names the holder. A holder on the same
//     machine is dead if its process has ended. A holder on another machine is dead if the file does not change for
//     several of its intervals, measured by the clock of the process that looks.
//  3. The file of a dead holder is renamed, then the new holder links its own file. The renamed file is read once more,
//     because another process may have been faster and the file may be that process's.
//  4. If a holder finds that the file names another process, it was taken for dead, for example because it was stopped
//     for long. It does not write any more. A writer looks before it begins, when its file is durable and is to take
//     its place, and before it removes each older file.
// What stays open: a holder that is stopped just between such a look and the rename or removal, for longer than
// `until_dead`, still does this one step in what is another's by then. No file system can tie the two together.
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/result.hpp"

namespace hvd::checkpoint {

struct LeaseTimes {
  std::chrono::milliseconds renewal{5000};
  std::chrono::milliseconds until_dead{30000};  // a holder on another machine counts as dead if its file does not
                                                // change for this time
};

class Lease {
 public:
  // Acquires the lease for the file or folder at `path`. `job` is the name of this process's job, for people; it may be
  // empty. While a holder on another machine may be dead, it first calls
  // `waiting` with a message and then blocks, at most for `until_dead`. If the holder is alive, fails with
  // ErrorCode::invalid_argument, and the message names the holder.
  static Result<std::unique_ptr<Lease>> acquire(const std::string& path, const std::string& job,
                                                const LeaseTimes& times,
                                                const std::function<void(const std::string&)>& waiting);
  // Removes the file if it still belongs to this holder.
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // Fails if this process may not write any more.
  Status check();
  const std::string& file() const noexcept { return file_; }

 private:
  Lease(std::string file, std::string holder, LeaseTimes times);
  void keep_renewing();

  const std::string file_, holder_;
  const LeaseTimes times_;
  std::mutex mutex_;
  std::condition_variable ending_;
  bool is_ending_ = false;
  long renewals_ = 0;
  std::thread thread_;
};

// Returns the path of the lease's file for a checkpoint's path.
std::string lease_file(const std::string& path);

}  // namespace hvd::checkpoint
