#include "checkpoint/generations.hpp"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "checkpoint/writer.hpp"
#include "native/posix/file_in_place.hpp"
#include "native/posix/folder.hpp"
#include "native/posix/host_identity.hpp"

namespace hvd::checkpoint {
namespace {

bool is_name_of_checkpoint(const std::string& name) {
  return !name.starts_with('.') && (name.ends_with(".h5") || name.ends_with(std::string(".h5") + previous_suffix));
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
    auto header = read_header(path);
    if (header) found.whole.push_back({path, *header});
    else if (header.error().code == ErrorCode::system) found.damaged.push_back({path, header.error().message});
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
  if (!posix::is_folder(path)) {
    auto reader = open_whole(library, path, verifies);
    if (reader || reader.error().code != ErrorCode::system) return reader;
    std::string before = path + previous_suffix;
    auto older = open_whole(library, before, verifies);
    if (!older) return reader;
    skipped(reader.error().message + "; using " + before + " instead");
    return older;
  }
  auto found = generations_in(path);
  if (!found) return found.error();
  std::string faults;
  for (const Damaged& damaged : found->damaged) {
    skipped(damaged.why);
    faults += "; " + damaged.why;
  }
  for (const Generation& generation : found->whole) {
    auto reader = open_whole(library, generation.path, verifies);
    if (reader) return reader;
    skipped(reader.error().message);
    faults += "; " + reader.error().message;
  }
  return Error(ErrorCode::invalid_argument,
               "the folder " + path + " on host " + posix::host_name() + " has no whole checkpoint" + faults);
}

Status remove_old(const std::string& folder, std::size_t keep) {
  auto found = generations_in(folder);
  if (!found) return found.error();
  std::size_t kept = 0;
  for (const Generation& generation : found->whole) {
    std::string name = generation.path.substr(folder.size() + 1);
    if (!name.starts_with("step-")) continue;
    if (kept++ < keep) continue;
    if (::unlink(generation.path.c_str()) != 0 && errno != ENOENT)
      return system_error("cannot remove the old checkpoint " + generation.path, errno);
  }
  return {};
}

}  // namespace hvd::checkpoint
