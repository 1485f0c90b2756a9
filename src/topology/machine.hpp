#pragma once
// The machine on which this process runs, as plain data. It is read once and passed on; tests can make up machines.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/settings/environment.hpp"
#include "native/posix/machine/affinity.hpp"

namespace hvd::topology {

using posix::CpuMask;  // processors (hardware threads), by the operating system's numbers

// All indices below are positions in the vectors of Machine. -1 means none or not known.
struct Package {
  int os_index = -1;
  CpuMask cpus;
};

struct NumaNode {
  int os_index = -1;
  int package = -1;
  CpuMask cpus;  // processors of the NUMA node; empty: memory without processors, for example that of a GPU
  std::int64_t memory_bytes = 0;
};

struct Cache {
  int level = 0;
  std::int64_t bytes = 0;
  CpuMask cpus;  // the processors that share it
};

struct Core {
  int package = -1;
  int numa_node = -1;
  int cache = -1;  // the largest cache that the core has
  CpuMask cpus;
};

struct PciDevice {
  enum class Kind : std::uint8_t { gpu, network };
  Kind kind = Kind::gpu;
  std::string bus_id;  // PCI address in lower case, "0004:04:00.0"
  std::uint16_t vendor = 0;
  std::uint16_t device = 0;
  CpuMask near;                           // all processors of the machine if nothing more precise is known
  int numa_node = -1;                     // the first NUMA node that is near to the device
  std::vector<std::string> names;         // names that the system uses, "mlx5_0", "hsn0"
  std::vector<std::string> bridges = {};  // PCI addresses of the bridges above it, the nearest first
};

// NVLink between two GPUs.
struct NvLink {
  std::string from, to;  // their PCI addresses
  std::int64_t megabytes_per_s = 0;
};

struct Machine {
  std::string source;            // where the facts come from, for reports: "hwloc 2.9.0", "/sys", a file name
  bool is_this_machine = false;  // false: imported from a file, so processes must not be bound by it
  CpuMask cpus;                  // the processors that processes are allowed to use here
  std::vector<Package> packages;
  std::vector<NumaNode> numa_nodes;
  std::vector<Cache> caches;  // data caches, from level 2 on
  std::vector<Core> cores;    // the cores, ordered by package, NUMA node and cache
  std::vector<PciDevice> devices;
  std::vector<NvLink> nvlinks;
  bool knows_nvlinks = false;  // else it is not known whether there are any

  // Finds a device by its PCI bus id as CUDA, NVML or lspci write it ("0000:17:00.0", "00000000:17:00.0", "17:00.0";
  // upper or lower case). Returns null if there is none.
  const PciDevice* device(std::string_view bus_id) const;
};

// Reads this machine. Uses hwloc if its plugin can be opened, otherwise /sys; `notices` then gets one line with the
// reason. The variable HWLOC_XMLFILE names another source. It is an error if that source cannot be read.
// With `asks_drivers`, hwloc also asks NVIDIA's management library about NVLink, if it can, which takes some time.
Result<Machine> read_machine(const Environment& environment, std::vector<std::string>& notices,
                             bool asks_drivers = false);
// Reads a file that lstopo --of xml wrote. Needs hwloc.
Result<Machine> read_machine_from_xml(const std::string& path, const Environment& environment);
// Reads the machine without hwloc: the processors of `allowed`, as the files below the folder (normally "/sys")
// describe them.
Machine read_machine_from_sys(const std::string& folder, const CpuMask& allowed);

}  // namespace hvd::topology
