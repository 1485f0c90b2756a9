#pragma once
// Parts of ours that need an optional library are shared objects of their own, opened when they are wanted.
// libhorovod_NAME.so exports one function, horovod_NAME_plugin(), that returns a table whose first member is a
// PluginStamp. Plugins of one table for several libraries are NAME-LIBRARY and export horovod_NAME_plugin().
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/environment.hpp"
#include "base/result.hpp"

namespace hvd::posix {

struct PluginStamp {
  const char* version;        // of the project: core and plugin must be of one build
  std::uint32_t table_bytes;  // sizeof the whole table
};

// The stamp of the build (of a plugin or of the core) that contains the calling code.
PluginStamp plugin_stamp(std::size_t table_bytes) noexcept;

// Opens a plugin for the rest of the process's life (its library may have threads and handlers: it is never unloaded).
// Looks in the folder of the object that contains this code, in ../lib beside it, then in the folders of
// HOROVOD_PLUGIN_PATH. ErrorCode::unsupported if there is none or it cannot be loaded, with what was found at every
// place.
Result<const void*> open_plugin_table(std::string_view name, std::size_t table_bytes, const Environment& environment);

// Where the plugin lies; empty if it is at none of these places. Opens nothing.
std::string plugin_path(std::string_view name, const Environment& environment);

template <typename Table>
Result<const Table*> open_plugin(std::string_view name, const Environment& environment) {
  auto table = open_plugin_table(name, sizeof(Table), environment);
  if (!table) return std::move(table.error());
  return static_cast<const Table*>(*table);
}

}  // namespace hvd::posix
