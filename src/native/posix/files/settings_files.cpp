#include "native/posix/files/settings_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "base/error_ids.hpp"
#include "native/posix/files/file_descriptor.hpp"
#include "native/posix/plugins/shared_library.hpp"

namespace hvd::posix {
namespace {

constexpr off_t most_bytes = 1 << 20;  // a larger file is refused

Result<std::string> read_whole(const std::string& path, const FileDescriptor& file) {
  std::string text;
  ssize_t count = 0;
  for (char chunk[4096]; (count = ::read(file.get(), chunk, sizeof chunk)) > 0;) {
    text.append(chunk, static_cast<std::size_t>(count));
    if (static_cast<off_t>(text.size()) > most_bytes)
      return Error(ErrorCode::invalid_argument, path + " is larger than 1 MiB: expected a file of settings");
  }
  if (count < 0) return system_error("the settings in " + path + " cannot be read", errno);
  return text;
}

bool is_absent(int errno_value) {
  return errno_value == ENOENT || errno_value == ENOTDIR;
}

// True if nobody but this user and root could have put the file there. This includes the folders above it: in a folder
// such as /tmp anybody may make a file.
bool is_trusted(const struct stat& file, const std::string& own_folder) {
  struct stat own {};
  bool has_owner = ::stat(own_folder.c_str(), &own) == 0;
  bool is_of_somebody_else =
      file.st_uid != 0 && file.st_uid != ::geteuid() && !(has_owner && file.st_uid == own.st_uid);
  return !is_of_somebody_else && (file.st_mode & S_IWOTH) == 0;
}

struct Opened {
  std::string path;
  FileDescriptor file;
};

// Opens the site's file of settings. The result is empty if there is no such file.
Result<std::optional<Opened>> open_site_file(const Environment& environment, const std::string& own_folder,
                                             std::vector<std::string>& notices) {
  std::string named = environment.get("HOROVOD_SITE_CONFIG").value_or("");
  if (named == "none") return std::optional<Opened>();
  if (!named.empty()) {
    FileDescriptor file(::open(named.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) return system_error("the site's settings, HOROVOD_SITE_CONFIG=" + named + ", cannot be read", errno);
    return std::optional(Opened{named, std::move(file)});
  }
  std::string folder = own_folder;
  for (bool is_root = false; !is_root; folder.resize(is_root ? 0 : folder.rfind('/'))) {
    is_root = folder.empty();
    std::string path = folder + "/etc/horovod/site.yaml";
    FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file && is_absent(errno)) continue;
    if (!file) return system_error("the site's settings in " + path + " cannot be read", errno);
    struct stat found {};
    if (::fstat(file.get(), &found) != 0)
      return system_error("the site's settings in " + path + " cannot be read", errno);
    if (is_trusted(found, own_folder)) return std::optional(Opened{path, std::move(file)});
    notices.push_back(path + " was ignored: expected a file that belongs to root, to you or to the owner of " +
                      own_folder +
                      ", and that others may not write; to use it anyway, set HOROVOD_SITE_CONFIG=" + path);
  }
  return std::optional<Opened>();
}

Result<std::optional<Opened>> open_user_file(const Environment& environment) {
  std::string folder = environment.get("XDG_CONFIG_HOME").value_or("");
  std::string home = environment.get("HOME").value_or("");
  // the XDG standard demands an absolute path
  if (!folder.starts_with('/')) folder = home.starts_with('/') ? home + "/.config" : "";
  if (folder.empty()) return std::optional<Opened>();
  std::string path = folder + "/horovod/config.yaml";
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  // If this process cannot enter the home folder, the user has no file of settings. This is so on nodes that do not
  // mount it.
  if (!file && (is_absent(errno) || (errno == EACCES && ::access(home.c_str(), X_OK) != 0)))
    return std::optional<Opened>();
  if (!file) return system_error("the user's settings in " + path + " cannot be read", errno);
  return std::optional(Opened{std::move(path), std::move(file)});
}

Result<std::optional<SettingsFile>> read(Result<std::optional<Opened>> opened, bool is_of_site,
                                         std::vector<std::string>& notices) {
  if (!opened) return std::move(opened.error());
  if (!*opened) return std::optional<SettingsFile>();
  auto text = read_whole((*opened)->path, (*opened)->file);
  if (!text) return std::move(text.error());
  auto parsed = parse_settings_file(*text, (*opened)->path, is_of_site);
  if (!parsed) return std::move(parsed.error());
  notices.insert(notices.end(), parsed->notices.begin(), parsed->notices.end());
  return std::optional(std::move(*parsed));
}

}  // namespace

Result<SettingsFiles> read_settings_files(const Environment& environment, const std::string& own_folder,
                                          std::vector<std::string>& notices) {
  auto site = read(open_site_file(environment, own_folder, notices), true, notices);
  if (!site) return identified(std::move(site.error()), "HVD1003");
  auto user = read(open_user_file(environment), false, notices);
  if (!user) return identified(std::move(user.error()), "HVD1003");
  return SettingsFiles{std::move(*site), std::move(*user)};
}

std::string own_folder() {
  return folder_of_code(reinterpret_cast<const void*>(&own_folder));
}

Result<const SettingsFiles*> settings_files(std::vector<std::string>& notices) {
  static std::vector<std::string> about_files;
  static const Result<SettingsFiles> files =
      read_settings_files(Environment::of_this_process(), own_folder(), about_files);
  if (!files) return files.error();
  notices.insert(notices.end(), about_files.begin(), about_files.end());
  return &*files;
}

Environment environment_with_files() {
  std::vector<std::string> unheard;
  Environment own = Environment::of_this_process();
  auto files = settings_files(unheard);
  return files ? (*files)->over(std::move(own)) : own;
}

Result<Environment> with_settings_files(const Environment& environment, std::vector<std::string>& notices) {
  auto files = settings_files(notices);
  if (!files) return std::move(files.error());
  HVD_RETURN_IF_ERROR((*files)->check_locks(environment, notices));
  return (*files)->over(environment);
}

}  // namespace hvd::posix
