#include "launcher/staging/environments.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <vector>

#include "native/posix/files/folder.hpp"
#include "native/posix/files/random.hpp"
#include "native/posix/files/text_file.hpp"
#include "native/posix/processes/ask_program.hpp"

namespace hvd::launcher::staging {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kept_for = std::chrono::hours(1);
constexpr std::chrono::seconds made_just_now{60};  // a folder that is younger may be without its lock for a moment
constexpr std::chrono::minutes longest_repair{10};

// Locks a folder. The result is empty if the folder is not there, or if the lock `how` is not possible because of
// another process's lock.
posix::FileDescriptor locked(const std::string& folder, int how) {
  posix::FileDescriptor lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  int failed = 0;
  while (lock && (failed = ::flock(lock.get(), how)) != 0 && errno == EINTR) {
  }
  return failed == 0 ? std::move(lock) : posix::FileDescriptor();
}

std::string line_of(const std::string& text, const std::string& name) {
  for (std::size_t at = 0; at < text.size();) {
    std::string line = text.substr(at, text.find('\n', at) - at);
    at += line.size() + 1;
    if (line.starts_with(name + "=")) return line.substr(name.size() + 1);
  }
  return "";
}

std::string text_in(const std::string& path) {
  auto text = posix::read_text(path);
  return text ? *text : std::string();
}

Status write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  if (file) return {};
  return system_error(path + " cannot be written", errno);
}

std::optional<std::chrono::seconds> age_of(const std::string& path) {
  struct stat state {};
  if (::lstat(path.c_str(), &state) != 0) return std::nullopt;
  return std::chrono::seconds(::time(nullptr) - state.st_mtime);
}

// Returns the folder that contains bin: the content itself, or the only folder in the content.
Result<std::string> place_of_bin(const std::string& content) {
  auto has_bin = [&](const std::string& place) { return posix::is_folder(content + "/" + place + "/bin"); };
  if (has_bin(".")) return std::string(".");
  std::vector<std::string> names = posix::names_in(content);
  const bool fits_in_a_line = names.size() == 1 && names[0].find('\n') == std::string::npos;  // of the record
  if (fits_in_a_line && has_bin(names[0])) return names[0];
  return Error(ErrorCode::invalid_argument,
               "it has no folder bin, neither at its top nor in its only folder: pack a whole environment, by "
               "conda-pack, venv-pack or tar");
}

// Runs conda-unpack, which adapts an environment made by conda-pack to its place.
Status repair(const std::string& prefix) {
  const std::string program = prefix + "/bin/conda-unpack";
  if (::access(program.c_str(), X_OK) != 0) return {};
  // The first line of conda-unpack looks for python along PATH.
  const std::string said = posix::answer_of(
      {"sh", "-c", "PATH=\"$1/bin:$PATH\" \"$1/bin/conda-unpack\" && echo done", "sh", prefix}, longest_repair);
  if (said.ends_with("done\n")) return {};
  return Error(ErrorCode::system, program + " failed: " + said.substr(0, 1000));
}

}  // namespace

void remove_tree(const std::string& folder) {
  std::error_code ignored;
  for (fs::recursive_directory_iterator at(folder, ignored), end; at != end; at.increment(ignored))
    if (!at->is_symlink(ignored) && at->is_directory(ignored))
      fs::permissions(at->path(), fs::perms::owner_all, fs::perm_options::add, ignored);
  fs::remove_all(folder, ignored);
}

Result<ArchiveState> ArchiveState::of(const std::string& path) {
  struct stat state {};
  if (::stat(path.c_str(), &state) != 0) return system_error("the archive cannot be read", errno);
  if (!S_ISREG(state.st_mode)) return Error(ErrorCode::invalid_argument, "expected an archive, found no regular file");
  auto time = [](const timespec& at) { return std::to_string(at.tv_sec) + "." + std::to_string(at.tv_nsec); };
  return ArchiveState{path, static_cast<std::uint64_t>(state.st_size),
                      std::to_string(state.st_ino) + " " + std::to_string(state.st_size) + " " + time(state.st_mtim) +
                          " " + time(state.st_ctim)};
}

Result<Environments> Environments::in(const std::string& parent, const std::string& temporary_folder) {
  std::string place = parent;
  if (place.empty()) place = posix::is_folder(temporary_folder) ? temporary_folder : "/tmp";
  Environments found(place + "/horovod-environments-" + std::to_string(::getuid()));
  if (::mkdir(found.folder_.c_str(), 0700) != 0 && errno != EEXIST)
    return system_error("the folder " + found.folder_ + " cannot be made (--stage-to names another place)", errno);
  struct stat state {};
  if (::lstat(found.folder_.c_str(), &state) != 0) return system_error(found.folder_, errno);
  if (S_ISDIR(state.st_mode) && state.st_uid == ::getuid() && (state.st_mode & 022) == 0) return found;
  return Error(ErrorCode::invalid_argument,
               "expected " + found.folder_ +
                   " to be a folder that this user alone may write to, but others may: remove it, or "
                   "name another folder by --stage-to");
}

std::uint64_t Environments::free_bytes() const {
  struct statvfs room {};
  if (::statvfs(folder_.c_str(), &room) != 0) return ~std::uint64_t{0};
  return std::uint64_t{room.f_bavail} * room.f_frsize;
}

std::string Environments::digest_of(const ArchiveState& archive) const {
  for (const std::string& name : posix::names_in(folder_)) {
    const std::string record = text_in(path_of(name) + "/record");
    if (line_of(record, "archive") == archive.path && line_of(record, "state") == archive.state) return name;
  }
  return "";
}

std::optional<Kept> Environments::use(const std::string& digest) const {
  Kept kept{locked(path_of(digest), LOCK_SH), ""};
  if (!kept.lock) return std::nullopt;
  // While this process waited for the lock, the folder may have been removed, and another folder may have got its name.
  struct stat ours {
  }, there{};
  if (::fstat(kept.lock.get(), &ours) != 0 || ::stat(path_of(digest).c_str(), &there) != 0 ||
      ours.st_ino != there.st_ino)
    return std::nullopt;
  const std::string prefix = line_of(text_in(path_of(digest) + "/record"), "prefix");
  if (prefix.empty()) return std::nullopt;
  kept.prefix = path_of(digest) + "/content" + (prefix == "." ? "" : "/" + prefix);
  return kept;
}

void Environments::note_use(const std::string& digest, const std::string& job) const {
  (void)write_text(path_of(digest) + "/last-use", job + "\n");
}

Result<Unpacking> Environments::begin() const {
  Unpacking unpacking;
  unpacking.folder = path_of("unpacking-" + posix::random_hex(6));
  unpacking.content = unpacking.folder + "/content";
  if (::mkdir(unpacking.folder.c_str(), 0700) != 0 || ::mkdir(unpacking.content.c_str(), 0700) != 0)
    return system_error("the folder " + unpacking.content + " cannot be made (--stage-to names another place)", errno);
  unpacking.lock = locked(unpacking.folder, LOCK_EX | LOCK_NB);
  if (unpacking.lock) return unpacking;
  return system_error(unpacking.folder + " cannot be locked; its file system must be local (--stage-to)", errno);
}

Result<Kept> Environments::publish(Unpacking unpacking, const std::string& digest, const ArchiveState& archive,
                                   const std::string& job) const {
  auto prefix = place_of_bin(unpacking.content);
  if (!prefix) return prefix.error();
  while (::rename(unpacking.folder.c_str(), path_of(digest).c_str()) != 0) {
    if (errno != EEXIST && errno != ENOTEMPTY) return system_error(path_of(digest) + " cannot be made", errno);
    if (auto kept = use(digest)) {  // another job has unpacked the same archive earlier
      remove_tree(unpacking.folder);
      HVD_RETURN_IF_ERROR(write_record(digest, archive, *prefix));
      note_use(digest, job);
      return std::move(*kept);
    }
    // a folder without a record: its job was interrupted
    if (auto lock = locked(path_of(digest), LOCK_EX | LOCK_NB)) remove_locked(digest);
  }
  const std::string place = path_of(digest) + "/content" + (*prefix == "." ? "" : "/" + *prefix);
  HVD_RETURN_IF_ERROR(repair(place));
  note_use(digest, job);
  HVD_RETURN_IF_ERROR(write_record(digest, archive, *prefix));
  ::flock(unpacking.lock.get(), LOCK_SH);
  return Kept{std::move(unpacking.lock), place};
}

// The record is written under another name and then renamed, because other processes may read it at any time.
Status Environments::write_record(const std::string& digest, const ArchiveState& archive,
                                  const std::string& prefix) const {
  const std::string record = path_of(digest) + "/record", written = record + "-" + posix::random_hex(6);
  HVD_RETURN_IF_ERROR(
      write_text(written, "archive=" + archive.path + "\nstate=" + archive.state + "\nprefix=" + prefix + "\n"));
  if (::rename(written.c_str(), record.c_str()) == 0) return {};
  return system_error(record + " cannot be written", errno);
}

void Environments::remove_locked(const std::string& name) const {
  const std::string removed = path_of("removing-" + posix::random_hex(6));
  if (::rename(path_of(name).c_str(), removed.c_str()) == 0) remove_tree(removed);
}

void Environments::remove_old(const std::string& spared) const {
  for (const std::string& name : posix::names_in(folder_)) {
    if (name == spared) continue;
    const bool is_ready = !name.starts_with("removing-") && ::access((path_of(name) + "/record").c_str(), F_OK) == 0;
    auto age = age_of(path_of(name) + (is_ready ? "/last-use" : ""));
    if (age && *age < (is_ready ? kept_for : made_just_now)) continue;
    if (auto lock = locked(path_of(name), LOCK_EX | LOCK_NB)) remove_locked(name);
  }
}

void Environments::remove(const std::string& digest, const std::string& job) const {
  auto lock = locked(path_of(digest), LOCK_EX | LOCK_NB);
  if (lock && text_in(path_of(digest) + "/last-use") == job + "\n") remove_locked(digest);
}

}  // namespace hvd::launcher::staging
