#include "native/posix/plugins/plugin.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "native/posix/files/folder.hpp"
#include "native/posix/plugins/shared_library.hpp"

namespace hvd::posix {
namespace {

std::vector<std::string> plugin_folders(const Environment& environment) {
  std::vector<std::string> folders;
  if (auto own = folder_of_code(reinterpret_cast<const void*>(&plugin_stamp)); !own.empty()) {
    folders.push_back(own);
    if (!own.ends_with("/lib")) folders.push_back(own + "/../lib");
  }
  std::string path = environment.get("HOROVOD_PLUGIN_PATH").value_or("");
  for (std::size_t at = 0; at < path.size();) {
    std::size_t end = std::min(path.find(':', at), path.size());
    if (end > at) folders.push_back(path.substr(at, end - at));
    at = end + 1;
  }
  return folders;
}

// Returns the stamp of a plugin of this version whose own library is there.
Result<const PluginStamp*> stamp_of(const SharedLibrary& library, std::string_view name) {
  std::string symbol = "horovod_" + std::string(name.substr(0, name.find('-'))) + "_plugin";
  auto entry = reinterpret_cast<const PluginStamp* (*)()>(library.symbol(symbol.c_str()));
  if (entry == nullptr) return Error(ErrorCode::unsupported, library.path() + " has no function " + symbol);
  // Only a plugin that opens its library by name (cmake/by_name.cmake) has this function, which returns the reason of a
  // failure.
  if (auto lacks = reinterpret_cast<const char* (*)()>(library.symbol("horovod_plugin_lacks")))
    if (const char* what = lacks(); what != nullptr)
      return Error(ErrorCode::unsupported, library.path() + " cannot be used: " + what);
  const PluginStamp* found = entry();
  const char* const wanted = plugin_stamp(0).version;
  if (std::strcmp(found->version, wanted) != 0)
    return Error(ErrorCode::unsupported, library.path() + " is of Horovod " + found->version +
                                             ", but this is Horovod " + wanted + ": install both from one build");
  return found;
}

Result<const void*> table_of(const SharedLibrary& library, std::string_view name, std::size_t table_bytes) {
  auto found = stamp_of(library, name);
  if (!found) return std::move(found.error());
  if ((*found)->table_bytes != table_bytes)
    return Error(ErrorCode::unsupported, library.path() + " has a table of " + std::to_string((*found)->table_bytes) +
                                             " bytes, expected " + std::to_string(table_bytes) +
                                             ": core and plugin are of different builds");
  return static_cast<const void*>(*found);
}

Result<SharedLibrary> open_library(const std::string& path) {
  return SharedLibrary::open(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

}  // namespace

PluginStamp plugin_stamp(std::size_t table_bytes) noexcept {
  return {HVD_VERSION, static_cast<std::uint32_t>(table_bytes)};
}

std::string plugin_path(std::string_view name, const Environment& environment) {
  for (const std::string& folder : plugin_folders(environment)) {
    std::string path = folder + "/libhorovod_" + std::string(name) + ".so";
    if (::access(path.c_str(), F_OK) == 0) return path;
  }
  return {};
}

bool can_open_plugin(std::string_view name, const Environment& environment) {
  return std::ranges::any_of(plugin_folders(environment), [&](const std::string& folder) {
    const std::string path = folder + "/libhorovod_" + std::string(name) + ".so";
    if (::access(path.c_str(), F_OK) != 0) return false;
    auto library = open_library(path);
    return library && stamp_of(*library, name);
  });
}

std::vector<std::string> installed_libraries(const Environment& environment) {
  std::vector<std::string> paths;
  for (const std::string& folder : plugin_folders(environment))
    for (const std::string& name : names_in(folder))
      if (name.starts_with("libhorovod") && name.find(".so") != std::string::npos) paths.push_back(folder + "/" + name);
  return paths;
}

Result<const void*> open_plugin_table(std::string_view name, std::size_t table_bytes, const Environment& environment) {
  std::string file = "libhorovod_" + std::string(name) + ".so";
  std::string places;
  std::string faults;
  for (const std::string& folder : plugin_folders(environment)) {
    std::string path = folder + "/" + file;
    places += (places.empty() ? "" : ", ") + folder;
    if (::access(path.c_str(), F_OK) != 0) continue;
    auto library = open_library(path);
    auto table = library ? table_of(*library, name, table_bytes) : Result<const void*>(std::move(library.error()));
    if (table) return table;
    faults += (faults.empty() ? "" : "; ") + table.error().message;
  }
  if (faults.empty()) faults = file + " is in none of " + places + " (HOROVOD_PLUGIN_PATH adds folders)";
  return Error(ErrorCode::unsupported, std::move(faults));
}

}  // namespace hvd::posix
