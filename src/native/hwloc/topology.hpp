#pragma once
// What hwloc knows about a machine, as a flat list without hwloc's types. Only the plugin contains this code. The rest
// of the project calls it through the table below: posix::open_plugin<hwloc::Plugin>("hwloc", environment).
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "native/posix/machine/affinity.hpp"
#include "native/posix/plugins/plugin.hpp"

namespace hvd::hwloc {

enum class Kind : std::uint8_t { package, numa_node, cache, core, processor, pci_device };

struct Object {
  Kind kind = Kind::processor;
  int os_index = -1;
  posix::CpuMask cpus;     // of a PCI device: the processors that are near to it
  std::int64_t bytes = 0;  // size of a cache, or memory of a NUMA node
  int cache_level = 0;
  std::string bus_id;  // address of a PCI device: "0004:04:00.0"
  std::uint16_t pci_class = 0;
  std::uint16_t vendor = 0;
  std::uint16_t device = 0;
  std::vector<std::string> names;  // of a PCI device: the names that the system and its drivers use ("mlx5_0", "hsn0",
                                   // "cuda0")
  std::vector<std::string> bridges;  // of a PCI device: the addresses of the PCI bridges above it, the nearest first
};

// NVLink between two PCI devices, also over NVSwitches.
struct NvLink {
  std::string from, to;  // addresses
  std::int64_t megabytes_per_s = 0;
};

struct Source {
  std::string xml_path;  // a file of hwloc's XML; if this and the text are empty, the source is this machine
  std::string xml_text;
  bool asks_drivers = false;  // asks NVIDIA's management library about the links between GPUs, which takes some time
};

struct Reading {
  std::vector<Object> objects;  // each kind in hwloc's logical order
  std::vector<NvLink> nvlinks;
  bool knows_nvlinks = false;  // else it is not known which there are
  posix::CpuMask cpus;         // the processors that processes here may use
  bool is_this_machine = false;
  std::string version;  // version of hwloc: "hwloc 2.9.0"
};

// Reads cores, packages, NUMA nodes, data caches from level 2 on, and PCI devices of interest. It never binds a thread,
// not even for a moment.
Result<Reading> read(const Source& source);

struct Plugin {
  posix::PluginStamp stamp;
  Result<Reading> (*read)(const Source& source);
};

}  // namespace hvd::hwloc
