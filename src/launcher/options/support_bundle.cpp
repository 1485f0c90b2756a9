#include "launcher/options/support_bundle.hpp"

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>

#include "launcher/options/secrets.hpp"
#include "native/posix/files/file_descriptor.hpp"
#include "native/posix/files/folder.hpp"
#include "native/posix/machine/host_identity.hpp"
#include "native/posix/processes/ask_program.hpp"
#include "schedulers/selection/selection.hpp"

namespace hvd::launcher {
namespace {

constexpr off_t tail_bytes = 64 << 10;  // the number of bytes that are taken from the end of each log
constexpr std::size_t most_logs = 64;

// Returns the end of a file; empty if it cannot be read.
std::string tail_of(const std::string& path) {
  posix::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat found {};
  if (!file || ::fstat(file.get(), &found) != 0 || S_ISDIR(found.st_mode)) return {};
  if (S_ISREG(found.st_mode) && found.st_size > tail_bytes) ::lseek(file.get(), -tail_bytes, SEEK_END);
  std::string text;
  ssize_t count = 0;
  for (char chunk[4096];
       text.size() < static_cast<std::size_t>(tail_bytes) && (count = ::read(file.get(), chunk, sizeof chunk)) > 0;)
    text.append(chunk, static_cast<std::size_t>(count));
  return text;
}

std::string system_text() {
  struct utsname names {};
  ::uname(&names);
  std::string text = "host: " + posix::host_name() + "\nkernel: " + names.sysname + " " + names.release + " " +
                     names.version + "\nmachine: " + names.machine + "\n\n/etc/os-release\n" +
                     tail_of("/etc/os-release");
  for (const char* file : {"/proc/self/limits", "/proc/self/cgroup", "/proc/meminfo", "/proc/loadavg"})
    text += std::string("\n") + file + "\n" + tail_of(file);
  return text;
}

// Adds the logs of --output-filename: the ranks write to rank.<rank>/stdout and stderr in its folder.
void add_output_of_ranks(std::vector<BundleFile>& files, const std::string& folder) {
  for (const std::string& rank : posix::names_in(folder))
    for (const char* stream : {"stdout", "stderr"})
      if (std::string text = tail_of(folder + "/" + rank + "/" + stream);
          rank.starts_with("rank.") && !text.empty() && files.size() < most_logs)
        files.push_back({"log/" + rank + "." + stream, std::move(text)});
}

// Adds the newest logs of batch systems in the working directory: one of each kind.
void add_logs_of_batch_systems(std::vector<BundleFile>& files) {
  std::set<std::string> logs;
  const auto names = posix::names_in(".");
  for (const char* pattern : schedulers::output_files_of_all()) {
    std::string newest;
    time_t when = 0;
    for (const std::string& name : names) {
      struct stat found {};
      if (::fnmatch(pattern, name.c_str(), 0) != 0 || ::stat(name.c_str(), &found) != 0) continue;
      if (found.st_mtime < when) continue;
      newest = name;
      when = found.st_mtime;
    }
    if (!newest.empty()) logs.insert(newest);
  }
  for (const std::string& name : logs) files.push_back({"log/" + name, tail_of(name)});
}

std::string name_of_bundle() {
  std::time_t now = std::time(nullptr);
  struct tm parts {};
  ::gmtime_r(&now, &parts);
  char stamp[32];
  std::size_t length = std::strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &parts);
  return "horovod-support-" + posix::host_name() + "-" + std::string(stamp, length);
}

// A folder that exists while the archive is made.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code failed;
    path_ = (std::filesystem::temp_directory_path(failed) / "horovod-support-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

std::string map_of_ranks(const std::vector<Placement>& placements) {
  std::string text = "rank  local  host\n";
  for (const Placement& place : placements)
    text += std::to_string(place.rank.value) + "  " + std::to_string(place.local_rank) + " of " +
            std::to_string(place.local_size) + "  " + place.host + "\n";
  return text;
}

std::vector<BundleFile> facts_of_this_machine(const Flags& flags, const Layers& layers) {
  std::vector<BundleFile> files;
  files.push_back({"system.txt", system_text()});
  files.push_back({"environment.txt", variables_without_secrets(layers.given, {})});
  std::vector<std::string_view> prefixes = schedulers::prefixes_of_all();
  prefixes.insert(prefixes.end(), {"JSM_", "PALS", "PMI", "OMPI_", "PRTE_", "HYDRA"});  // those of launchers
  files.push_back({"scheduler.txt", variables_without_secrets(layers.given, prefixes)});
  if (layers.files.site) files.push_back({"site.yaml", tail_of(layers.files.site->path)});
  if (layers.files.user) files.push_back({"user.yaml", tail_of(layers.files.user->path)});
  if (flags.has("output_filename")) add_output_of_ranks(files, flags.get("output_filename"));
  else add_logs_of_batch_systems(files);
  return files;
}

Result<std::string> write_bundle(const std::vector<BundleFile>& files, std::string path,
                                 const Environment& environment) {
  const std::string name = name_of_bundle();
  if (path.empty()) path = name + ".tar.gz";
  TemporaryFolder folder;
  std::error_code failed;
  std::filesystem::create_directories(folder.path() + "/" + name + "/log", failed);
  if (folder.path().empty() || failed)
    return Error(ErrorCode::system,
                 "--support-bundle: there is no place for its parts; set TMPDIR to a folder that you "
                 "may write");
  ::umask(S_IRWXG | S_IRWXO);
  const Secrets secrets(environment);
  for (const BundleFile& file : files) {
    std::ofstream stream(folder.path() + "/" + name + "/" + file.name, std::ios::binary);
    stream << secrets.taken_out_of(file.text);
    if (!stream.flush()) return Error(ErrorCode::system, "--support-bundle: " + folder.path() + " is full");
  }
  posix::FileDescriptor archive(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!archive) return system_error("--support-bundle: " + path + " cannot be written", errno);
  std::string complaint = posix::answer_of(
      {"tar", "-C", folder.path(), "-czf", std::filesystem::absolute(path).string(), name}, std::chrono::minutes(1));
  struct stat found {};
  if (::fstat(archive.get(), &found) == 0 && found.st_size > 0 && complaint.empty()) return path;
  ::unlink(path.c_str());
  return Error(ErrorCode::system, "--support-bundle: expected tar to write " + path + ", found " +
                                      (complaint.empty() ? "no tar along PATH, or no gzip" : complaint));
}

}  // namespace hvd::launcher
