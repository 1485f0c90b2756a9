#pragma once
// The machine that this process runs on, as plain data: read once, handed around, made up in tests.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.hpp"
#include "base/result.hpp"
#include "native/posix/affinity.hpp"

namespace hvd::topology {

using posix::CpuMask;  // processors (hardware threads) by the numbers of the operating system

// All indices below are positions in the vectors of Machine; -1: none, or not known.
struct Package {
  int os_index = -1;
  CpuMask cpus;
};

struct NumaNode {
  int os_index = -1;
  int package = -1;
  CpuMask cpus;  // empty: memory without processors (that of a GPU, say)
  std::int64_t memory_bytes = 0;
};

struct Cache {
  int level = 0;
  std::int64_t bytes = 0;
  CpuMask cpus;  // that share it
};

struct Core {
  int package = -1;
  int numa_node = -1;
  int cache = -1;  // the outermost that it has
  CpuMask cpus;
};

struct PciDevice {
  enum class Kind : std::uint8_t { gpu, network };
  Kind kind = Kind::gpu;
  std::string bus_id;  // "0004:04:00.0", lower case
  std::uint16_t vendor = 0;
  std::uint16_t device = 0;
  CpuMask near;                    // all processors of the machine if nothing better is known
  int numa_node = -1;              // the first one near
  std::vector<std::string> names;  // "mlx5_0", "hsn0"
};

struct Machine {
  std::string source;            // "hwloc 2.9.0", "/sys", a file name; for reports
  bool is_this_machine = false;  // false: imported; binding by it would be wrong
  CpuMask cpus;                  // that processes here are allowed to use
  std::vector<Package> packages;
  std::vector<NumaNode> numa_nodes;
  std::vector<Cache> caches;  // of data, from level 2 on
  std::vector<Core> cores;    // neighbours in the machine are neighbours here: by package, NUMA node, cache
  std::vector<PciDevice> devices;

  // By PCI bus id as CUDA, NVML or lspci write it ("0000:17:00.0", "00000000:17:00.0", "17:00.0"; any case); null if
  // absent.
  const PciDevice* device(std::string_view bus_id) const;
};

// This machine, through hwloc if its plugin can be opened, else from /sys (`notices` gets one line that says why). The
// variable HWLOC_XMLFILE names another source; if that cannot be read, it is an error.
Result<Machine> read_machine(const Environment& environment, std::vector<std::string>& notices);
// A file that lstopo --of xml wrote. Needs hwloc.
Result<Machine> read_machine_from_xml(const std::string& path, const Environment& environment);
// Without hwloc: the processors of `allowed`, described by what lies under the folder (normally "/sys").
Machine read_machine_from_sys(const std::string& folder, const CpuMask& allowed);

}  // namespace hvd::topology
