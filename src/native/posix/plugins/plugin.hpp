#pragma once
// Parts of the project that need an optional library are shared objects of their own. They are opened when they are
// wanted. libhorovod_NAME.so exports one function, horovod_NAME_plugin(), that returns a table whose first member is a
// PluginStamp. If one table has plugins for several libraries, their files are named NAME-LIBRARY, and all export
// horovod_NAME_plugin().
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/settings/environment.hpp"

namespace hvd::posix {

struct PluginStamp {
  const char* version;        // version of the project; core and plugin must be of the same build
  std::uint32_t table_bytes;  // sizeof of the whole table
};

// Returns the stamp of the build (of a plugin or of the core) that contains the calling code.
PluginStamp plugin_stamp(std::size_t table_bytes) noexcept;

// Opens a plugin for the rest of the process's life. It is never unloaded, because its library may have threads and
// handlers. Looks in the folder of the object that contains this code, in ../lib beside that folder, then in the
// folders of HOROVOD_PLUGIN_PATH. If there is no plugin, or if it cannot be loaded, fails with ErrorCode::unsupported
// and tells what was found in every place.
Result<const void*> open_plugin_table(std::string_view name, std::size_t table_bytes, const Environment& environment);

// Returns the path of the plugin; empty if it is in none of these places. Opens nothing.
std::string plugin_path(std::string_view name, const Environment& environment);

// True if the plugin is there and can be loaded, for the one who only asks.
bool can_open_plugin(std::string_view name, const Environment& environment);

// Returns the paths of the core library and of all plugins that are in these places.
std::vector<std::string> installed_libraries(const Environment& environment);

template <typename Table>
Result<const Table*> open_plugin(std::string_view name, const Environment& environment) {
  auto table = open_plugin_table(name, sizeof(Table), environment);
  if (!table) return std::move(table.error());
  return static_cast<const Table*>(*table);
}

}  // namespace hvd::posix
