#include "topology/machine.hpp"

#include <algorithm>
#include <cctype>

#include "native/hwloc/topology.hpp"
#include "topology/machine_parts.hpp"

namespace hvd::topology {

namespace parts {

bool is_gpu(std::uint16_t pci_class, std::uint16_t vendor) {
  constexpr std::uint16_t aspeed = 0x1a03;  // the remote consoles of servers are "displays" too
  constexpr std::uint16_t matrox = 0x102b;
  bool display = (pci_class >> 8) == 0x03 && vendor != aspeed && vendor != matrox;
  bool accelerator = (pci_class >> 8) == 0x12;
  return display || accelerator;
}

bool is_network(std::uint16_t pci_class) {
  return (pci_class >> 8) == 0x02;
}

void connect(Machine& machine) {
  auto first_overlap = [](const auto& list, const CpuMask& cpus) {
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i].cpus.overlaps(cpus)) return static_cast<int>(i);
    return -1;
  };
  for (NumaNode& node : machine.numa_nodes) node.package = first_overlap(machine.packages, node.cpus);
  for (Core& core : machine.cores) {
    core.package = first_overlap(machine.packages, core.cpus);
    core.numa_node = first_overlap(machine.numa_nodes, core.cpus);
    for (std::size_t i = 0; i < machine.caches.size(); ++i) {
      const Cache& cache = machine.caches[i];
      bool outer = core.cache < 0 || cache.level > machine.caches[static_cast<std::size_t>(core.cache)].level;
      if (outer && cache.cpus.contains(core.cpus)) core.cache = static_cast<int>(i);
    }
  }
  for (PciDevice& device : machine.devices) {
    device.near &= machine.cpus;
    if (device.near.empty()) device.near = machine.cpus;
    // If a device is near to all processors, it is not near to a particular NUMA node.
    if (device.near != machine.cpus || machine.numa_nodes.size() == 1)
      device.numa_node = first_overlap(machine.numa_nodes, device.near);
  }
  std::sort(machine.devices.begin(), machine.devices.end(),
            [](const PciDevice& a, const PciDevice& b) { return a.bus_id < b.bus_id; });
}

}  // namespace parts

namespace {

Machine from_reading(hwloc::Reading reading) {
  Machine machine;
  machine.source = reading.version;
  machine.is_this_machine = reading.is_this_machine;
  machine.cpus = reading.cpus;
  std::vector<Core> processors;
  for (hwloc::Object& object : reading.objects) {
    CpuMask usable = object.cpus & machine.cpus;
    switch (object.kind) {
      case hwloc::Kind::package: machine.packages.push_back({object.os_index, usable}); break;
      case hwloc::Kind::numa_node: machine.numa_nodes.push_back({object.os_index, -1, usable, object.bytes}); break;
      case hwloc::Kind::cache: machine.caches.push_back({object.cache_level, object.bytes, usable}); break;
      case hwloc::Kind::core:
        if (!usable.empty()) machine.cores.push_back({-1, -1, -1, usable});
        break;
      case hwloc::Kind::processor:
        if (!usable.empty()) processors.push_back({-1, -1, -1, usable});
        break;
      case hwloc::Kind::pci_device: {
        bool gpu = parts::is_gpu(object.pci_class, object.vendor);
        if (!gpu && !parts::is_network(object.pci_class)) break;
        machine.devices.push_back({gpu ? PciDevice::Kind::gpu : PciDevice::Kind::network, std::move(object.bus_id),
                                   object.vendor, object.device, usable, -1, std::move(object.names),
                                   std::move(object.bridges)});
        break;
      }
    }
  }
  machine.knows_nvlinks = reading.knows_nvlinks;
  for (hwloc::NvLink& link : reading.nvlinks)
    machine.nvlinks.push_back({std::move(link.from), std::move(link.to), link.megabytes_per_s});
  if (machine.cores.empty()) machine.cores = std::move(processors);  // some virtual machines do not report their cores
  parts::connect(machine);
  return machine;
}

Result<Machine> read_with_hwloc(const hwloc::Source& source, const Environment& environment) {
  auto plugin = posix::open_plugin<hwloc::Plugin>("hwloc", environment);
  if (!plugin) return std::move(plugin.error());
  auto reading = (*plugin)->read(source);
  if (!reading) return std::move(reading.error());
  return from_reading(std::move(*reading));
}

// Returns the form "0000:17:00.0" for "17:00.0", "0000:17:00.0" or "00000000:17:00.0".
std::string canonical(std::string_view bus_id) {
  std::string text;
  for (char c : bus_id) text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::size_t colons = static_cast<std::size_t>(std::count(text.begin(), text.end(), ':'));
  if (colons == 1) text = "0000:" + text;
  std::size_t domain = text.find(':');
  if (domain != std::string::npos && domain > 4) {
    std::size_t zeros = std::min(text.find_first_not_of('0'), domain - 4);
    text.erase(0, std::min(zeros, domain - 4));
  }
  return text;
}

}  // namespace

const PciDevice* Machine::device(std::string_view bus_id) const {
  std::string wanted = canonical(bus_id);
  for (const PciDevice& device : devices)
    if (device.bus_id == wanted) return &device;
  return nullptr;
}

Result<Machine> read_machine_from_xml(const std::string& path, const Environment& environment) {
  auto machine = read_with_hwloc({path, {}, false}, environment);
  if (machine) machine->source = path;
  return machine;
}

Result<Machine> read_machine(const Environment& environment, std::vector<std::string>& notices, bool asks_drivers) {
  if (std::string path = environment.get("HWLOC_XMLFILE").value_or(""); !path.empty()) {
    auto machine = read_machine_from_xml(path, environment);
    if (!machine) machine.error().message = "HWLOC_XMLFILE: " + machine.error().message + ". Correct or unset it";
    return machine;
  }
  auto machine = read_with_hwloc({{}, {}, asks_drivers}, environment);
  if (machine) return machine;
  auto allowed = posix::affinity();
  if (!allowed) return std::move(allowed.error());
  notices.push_back("the machine is described by /sys, not by hwloc: " + machine.error().message);
  return read_machine_from_sys("/sys", *allowed);
}

}  // namespace hvd::topology
