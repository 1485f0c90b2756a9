#include "checkpoint/generations.hpp"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <string_view>

#include "checkpoint/writer.hpp"
#include "native/posix/files/file_in_place.hpp"
#include "native/posix/files/folder.hpp"
#include "native/posix/machine/host_identity.hpp"

namespace hvd::checkpoint {
namespace {

constexpr std::int64_t later_than_any = std::numeric_limits<std::int64_t>::max();

bool is_name_of_checkpoint(const std::string& name) {
  return !name.starts_with('.') && (name.ends_with(".h5") || name.ends_with(std::string(".h5") + previous_suffix));
}

// True for the names of path_for_step(), and of what such a file has replaced.
bool is_name_of_step(std::string_view name) {
  if (!name.starts_with("step-")) return false;
  name.remove_prefix(std::string_view("step-").size());
  std::size_t end = name.find_first_not_of("0123456789");
  return end != 0 && end != name.npos &&
         (name.substr(end) == ".h5" || name.substr(end) == std::string(".h5") + previous_suffix);
}

Status check_folder(const std::string& folder) {
  if (::access(folder.c_str(), R_OK | X_OK) == 0) return {};
  return system_error("the folder " + folder + " cannot be read on host " + posix::host_name(), errno);
}

Result<Reader> open_whole(const hdf5::Library& library, const std::string& path, bool verifies) {
  auto reader = Reader::open(library, path);
  if (!reader || !verifies) return reader;
  HVD_RETURN_IF_ERROR(reader->verify());
  return reader;
}

}  // namespace

std::string path_for_step(const std::string& folder, std::int64_t step) {
  char name[48];
  std::snprintf(name, sizeof name, "/step-%012lld.h5", static_cast<long long>(step));
  return folder + name;
}

Result<Generations> generations_in(const std::string& folder) {
  HVD_RETURN_IF_ERROR(check_folder(folder));
  Generations found;
  for (const std::string& name : posix::names_in(folder)) {
    if (!is_name_of_checkpoint(name)) continue;
    std::string path = folder + "/" + name;
    struct stat about {};
    const bool has_our_name = is_name_of_step(name);
    // removed meanwhile, or a link that leads nowhere; a step's link says that there was a checkpoint
    if ((has_our_name ? ::lstat(path.c_str(), &about) : ::stat(path.c_str(), &about)) != 0) continue;
    auto header = read_header(path);
    if (header) found.whole.push_back({path, *header});
    // A file of another program is no checkpoint, but one that a newer Horovod wrote is. Nothing else than a checkpoint
    // is expected under the name of a step, where a Checkpointer would replace it.
    else if (has_our_name || header.error().code != ErrorCode::invalid_argument)
      found.damaged.push_back({path, header.error().message});
  }
  std::stable_sort(found.whole.begin(), found.whole.end(), [](const Generation& a, const Generation& b) {
    return a.header.sequence != b.header.sequence ? a.header.sequence > b.header.sequence
                                                  : a.header.step > b.header.step;
  });
  return found;
}

std::int64_t next_sequence(const std::string& path) {
  auto found = generations_in(posix::folder_of(path));
  std::int64_t greatest = 0;
  if (found && !found->whole.empty()) greatest = found->whole.front().header.sequence;
  if (auto own = read_header(path)) greatest = std::max(greatest, own->sequence);  // whatever its suffix is
  return greatest + 1;
}

Result<Reader> open_newest(const hdf5::Library& library, const std::string& path, bool verifies,
                           const std::function<void(const std::string& why)>& skipped) {
  if (posix::is_folder(path)) return open_before(library, path, later_than_any, verifies, skipped);
  auto reader = open_whole(library, path, verifies);
  if (reader || reader.error().code != ErrorCode::system) return reader;
  std::string before = posix::end_of_links(path) + previous_suffix;
  auto older = open_whole(library, before, verifies);
  if (!older) return reader;
  skipped(reader.error().message + "; using " + before + " instead");
  return older;
}

Result<Reader> open_before(const hdf5::Library& library, const std::string& folder, std::int64_t sequence,
                           bool verifies, const std::function<void(const std::string& why)>& skipped) {
  auto found = generations_in(folder);
  if (!found) return found.error();
  std::string faults;
  for (const Damaged& damaged : found->damaged) {
    if (sequence == later_than_any) skipped(damaged.why);
    faults += "; " + damaged.why;
  }
  for (const Generation& generation : found->whole) {
    if (generation.header.sequence >= sequence) continue;
    auto reader = open_whole(library, generation.path, verifies);
    if (reader) return reader;
    skipped(reader.error().message);
    faults += "; " + reader.error().message;
  }
  std::string where = "the folder " + folder + " on host " + posix::host_name();
  if (faults.empty()) return Error(ErrorCode::invalid_argument, where + " has no checkpoint");
  return Error(ErrorCode::system, where + " has no whole checkpoint" + faults);
}

Status remove_old(const std::string& folder, std::size_t keep, const std::function<Status()>& may_remove) {
  auto found = generations_in(folder);
  if (!found) return found.error();
  std::size_t kept = 0;
  for (const Generation& generation : found->whole) {
    if (!is_name_of_step(generation.path.substr(folder.size() + 1))) continue;
    if (kept++ < keep) continue;
    HVD_RETURN_IF_ERROR(may_remove());
    if (::unlink(generation.path.c_str()) != 0 && errno != ENOENT)
      return system_error("cannot remove the old checkpoint " + generation.path, errno);
  }
  return {};
}

}  // namespace hvd::checkpoint
