#include "checkpoint/lease.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/text/number.hpp"
#include "native/posix/files/file_descriptor.hpp"
#include "native/posix/files/file_in_place.hpp"
#include "native/posix/files/folder.hpp"
#include "native/posix/files/random.hpp"
#include "native/posix/machine/host_identity.hpp"
#include "native/posix/processes/process.hpp"
#include "native/posix/processes/thread.hpp"

namespace hvd::checkpoint {
namespace {

// The content of the file. `holder` is its first lines, which never change; `renewals` is its last line.
struct Claim {
  std::string holder;
  std::string host, space, machine, job;
  pid_t process = 0;
  std::uint64_t began = 0;
  std::string renewals;
};

std::string describe_self(const std::string& job) {
  return "Horovod writes checkpoints here; this file tells who does\nhost " + posix::host_name() + "\nprocess " +
         std::to_string(::getpid()) + "\nbegan " + std::to_string(posix::began_at(::getpid()).value_or(0)) +
         "\nspace " + posix::process_space() + "\nmachine " + posix::node_id() + "\njob " + job + "\nmark " +
         posix::random_hex(8) + "\n";
}

std::string line_of(const std::string& text, const std::string& name) {
  std::size_t at = text.find("\n" + name + " ");
  if (at == std::string::npos) return {};
  at += name.size() + 2;
  return text.substr(at, text.find('\n', at) - at);
}

Claim parse(const std::string& text) {
  Claim claim;
  std::size_t last = text.find("\nrenewals ");
  claim.holder = text.substr(0, last == std::string::npos ? last : last + 1);
  claim.host = line_of(text, "host");
  claim.space = line_of(text, "space");
  claim.machine = line_of(text, "machine");
  claim.job = line_of(text, "job");
  claim.process = number_in<pid_t>(line_of(text, "process")).value_or(0);
  claim.began = number_in<std::uint64_t>(line_of(text, "began")).value_or(0);
  claim.renewals = line_of(text, "renewals");
  return claim;
}

// Returns nothing and sets errno if the file cannot be opened.
std::optional<Claim> read_claim(const std::string& file) {
  posix::FileDescriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!opened) return std::nullopt;
  char text[4096];
  ssize_t size = ::pread(opened.get(), text, sizeof text, 0);
  return parse(std::string(text, size > 0 ? static_cast<std::size_t>(size) : 0));
}

// Makes the error for a file that bars the place of a lease and cannot be read or moved.
Error barred(const std::string& path, const std::string& file, const std::string& what, int reason) {
  struct stat about {};
  std::string owner;
  if (::lstat(file.c_str(), &about) == 0)
    owner = (S_ISLNK(about.st_mode) ? ", a symbolic link" : "") + std::string(" of the user with the number ") +
            std::to_string(about.st_uid);
  return system_error("cannot tell whether another job writes to " + path + ": " + file + owner + ", " + what +
                          ". Give this job another path, or let the owner remove that file if its job has ended",
                      reason);
}

std::string name_of(const Claim& claim) {
  return "process " + std::to_string(claim.process) + " on host " + claim.host +
         (claim.job.empty() ? "" : " (job " + claim.job + ")");
}

// Tells whether the claim's process is alive or has ended. It is unknown if this process cannot see that process.
enum class Sight { alive, ended, unknown };
Sight look_at(const Claim& claim) {
  if (claim.space != posix::process_space() || claim.machine != posix::node_id() || claim.process <= 0)
    return Sight::unknown;
  // The first process of many containers is no init: what ends there as an orphan stays a zombie.
  if (posix::began_at(claim.process) != claim.began || posix::is_zombie(claim.process)) return Sight::ended;
  return Sight::alive;
}

Status write_text(const std::string& file, const std::string& text) {
  posix::FileDescriptor opened(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!opened) return system_error("cannot write " + file, errno);
  if (::write(opened.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return system_error("cannot write " + file, errno);
  ::fsync(opened.get());
  return {};
}

std::string content_of(const std::string& holder, long renewals) {
  return holder + "renewals " + std::to_string(renewals) + "\n";
}

// Returns true if `file` now belongs to this holder. NFS may report a failure although it made the link. Therefore the
// content of the file decides.
Result<bool> claim_free(const std::string& file, const std::string& holder) {
  std::string own = file + "." + posix::random_hex(6);
  if (auto written = write_text(own, content_of(holder, 0)); !written) {
    ::unlink(own.c_str());
    return written.error();
  }
  int outcome = ::link(own.c_str(), file.c_str());
  int reason = errno;
  if (outcome != 0 && reason != EEXIST && reason != ENOENT) {
    // This file system has no hard links. Exclusive creation has the same effect.
    posix::FileDescriptor made(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (made) outcome = ::rename(own.c_str(), file.c_str());
  }
  ::unlink(own.c_str());
  auto now = read_claim(file);
  if (outcome == 0 || (now && now->holder == holder)) return now && now->holder == holder;
  if (reason != EEXIST && !now) return system_error("cannot make " + file, reason);
  return false;
}

Status take_away(const std::string& path, const std::string& file, const Claim& dead) {
  std::string aside = file + "." + posix::random_hex(6);
  if (::rename(file.c_str(), aside.c_str()) != 0) {
    int reason = errno;
    if (reason == ENOENT) return {};
    return barred(path, file, "which " + name_of(dead) + " has left, cannot be moved", reason);
  }
  auto moved = read_claim(aside);
  if (moved && moved->holder != dead.holder) {
    // another holder was faster: the renamed file is its file, so it gets its name back unless there is a newer one
    int outcome = ::link(aside.c_str(), file.c_str());
    static_cast<void>(outcome);
  }
  ::unlink(aside.c_str());
  return {};
}

Error taken(const std::string& path, const Claim& claim) {
  return {ErrorCode::invalid_argument, path + " belongs to another job: " + name_of(claim) +
                                           " writes checkpoints there. Give this job another path, or end the other "
                                           "one (" +
                                           lease_file(path) + " tells who it is)"};
}

}  // namespace

std::string lease_file(const std::string& given) {
  if (posix::is_folder(given)) return given + "/.horovod-lease";
  std::string path = posix::end_of_links(given);
  return posix::folder_of(path) + "/." + path.substr(path.rfind('/') + 1) + ".lease";
}

Result<std::unique_ptr<Lease>> Lease::acquire(const std::string& path, const std::string& job, const LeaseTimes& times,
                                              const std::function<void(const std::string&)>& waiting) {
  using Clock = std::chrono::steady_clock;
  // Renewed by a thread, also after the program has gone to another folder.
  std::error_code ignored;
  std::string file = std::filesystem::absolute(lease_file(path), ignored).string();
  std::string holder = describe_self(job);
  std::optional<Claim> seen;
  Clock::time_point seen_at;
  for (;;) {
    auto claimed = claim_free(file, holder);
    if (!claimed) return claimed.error();
    if (*claimed) break;
    auto found = read_claim(file);
    if (!found && errno != ENOENT) return barred(path, file, "cannot be read", errno);
    if (!found) continue;  // its holder has just removed it
    Sight sight = look_at(*found);
    if (sight == Sight::alive) return taken(path, *found);
    bool has_changed = !seen || seen->holder != found->holder || seen->renewals != found->renewals;
    if (sight == Sight::unknown && seen && has_changed) return taken(path, *found);
    if (sight == Sight::ended || (!has_changed && Clock::now() - seen_at > times.until_dead)) {
      HVD_RETURN_IF_ERROR(take_away(path, file, *found));
      seen.reset();
      continue;
    }
    if (has_changed) {
      waiting(path + " was written by " + name_of(*found) + ", which cannot be asked from here; waiting up to " +
              std::to_string(std::chrono::duration_cast<std::chrono::seconds>(times.until_dead).count()) +
              " s to see whether it still is");
      seen = std::move(found);
      seen_at = Clock::now();
    }
    std::this_thread::sleep_for(std::min(times.renewal / 4, std::chrono::milliseconds(500)));
  }
  std::unique_ptr<Lease> lease(new Lease(file, holder, times));
  auto thread = posix::start_thread("hvd-lease", [raw = lease.get()] { raw->keep_renewing(); });
  if (!thread) return thread.error();
  lease->thread_ = std::move(*thread);
  return lease;
}

Lease::Lease(std::string file, std::string holder, LeaseTimes times)
    : file_(std::move(file)), holder_(std::move(holder)), times_(times) {}

Lease::~Lease() {
  {
    std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  ending_.notify_all();
  if (thread_.joinable()) thread_.join();
  auto now = read_claim(file_);
  if (now && now->holder == holder_) ::unlink(file_.c_str());
}

Status Lease::check() {
  auto now = read_claim(file_);
  if (now && now->holder == holder_) return {};
  if (!now) {
    auto claimed = claim_free(file_, holder_);  // somebody has removed the file
    if (!claimed) return claimed.error();
    if (*claimed) return {};
    now = read_claim(file_);
  }
  return Error(ErrorCode::invalid_argument,
               "this job has lost " + file_ + " to " + (now ? name_of(*now) : "another one") +
                   ", which took it for dead (was it suspended?). It does not write checkpoints there any more");
}

// The file is renewed in place. The open file is checked first, so that a file that another holder has put there
// meanwhile is not changed.
void Lease::keep_renewing() {
  std::unique_lock lock(mutex_);
  while (!ending_.wait_for(lock, times_.renewal, [&] { return is_ending_; })) {
    std::string text = content_of(holder_, ++renewals_);
    posix::FileDescriptor opened(::open(file_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!opened) continue;
    std::string now(holder_.size(), '\0');
    if (::pread(opened.get(), now.data(), now.size(), 0) != static_cast<ssize_t>(now.size()) || now != holder_)
      continue;
    if (::pwrite(opened.get(), text.data(), text.size(), 0) >= 0) ::fsync(opened.get());
  }
}

}  // namespace hvd::checkpoint
