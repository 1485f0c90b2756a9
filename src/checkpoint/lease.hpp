#pragma once
// Who may write a checkpoint: a file beside it names the one process that does. No flock, which parallel file systems
// grant to everybody, or refuse.
//
//  1. The holder has made the file by link(), of which only one of several succeeds, and renews it every few seconds.
//  2. Whoever finds the file of another holder is refused, and told who that is. A holder on the same machine whose
//     process has ended is dead; one elsewhere is dead when the file does not change for several of its intervals, by
//     the clock of the one who looks.
//  3. The file of a dead holder is renamed away, then the own one is linked. What was renamed away is looked at once
//     more: another one may have been faster.
//  4. A holder that finds the file to be another's has been taken for dead (it was stopped for long, say). It does not
//     write any more.
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
  std::chrono::milliseconds until_dead{30000};  // without a change
};

class Lease {
 public:
  // For the file, or the folder of files, at `path`. Blocks while a holder elsewhere may be dead: at most `until_dead`,
  // after a word to `waiting`. ErrorCode::invalid_argument names a living holder.
  static Result<std::unique_ptr<Lease>> acquire(const std::string& path, const LeaseTimes& times,
                                                const std::function<void(const std::string&)>& waiting);
  // Removes the file, if it is still this holder's.
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // Whether this process may still write.
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

// Where the lease for a path lies.
std::string lease_file(const std::string& path);

}  // namespace hvd::checkpoint
