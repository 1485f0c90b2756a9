// Reads a machine from the kernel's /sys, on systems without hwloc. Facts that cannot be read are left out. In the
// worst case every processor becomes a core of one package.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <tuple>

#include "base/text/number.hpp"
#include "native/posix/files/folder.hpp"
#include "topology/machine.hpp"
#include "topology/machine_parts.hpp"

namespace hvd::topology {
namespace {

std::string first_line(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

std::optional<long> number_in_file(const std::string& path, int base = 10) {
  std::string line = first_line(path);
  std::string_view text = line;
  if (base == 16 && text.starts_with("0x")) text.remove_prefix(2);
  return take_number<long>(text, base);
}

// Reads a list of processors or NUMA nodes, which the kernel writes as "0-3,8".
CpuMask read_cpulist(const std::string& path) {
  auto mask = CpuMask::parse(first_line(path));
  return mask ? *mask : CpuMask();
}

std::int64_t bytes_in(std::string_view size) {  // reads a size such as "32768K"
  std::int64_t number = take_number<std::int64_t>(size).value_or(0);
  char unit = size.empty() ? ' ' : size.front();
  return number << (unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0);
}

void add_caches(Machine& machine, const std::string& cpu_folder) {
  for (const std::string& name : posix::names_in(cpu_folder + "/cache")) {
    std::string folder = cpu_folder + "/cache/" + name;
    long level = number_in_file(folder + "/level").value_or(0);
    CpuMask cpus = read_cpulist(folder + "/shared_cpu_list") & machine.cpus;
    if (level < 2 || first_line(folder + "/type") == "Instruction" || cpus.empty()) continue;
    bool known = std::any_of(machine.caches.begin(), machine.caches.end(),
                             [&](const Cache& cache) { return cache.level == level && cache.cpus == cpus; });
    if (!known) machine.caches.push_back({static_cast<int>(level), bytes_in(first_line(folder + "/size")), cpus});
  }
}

void add_processors(Machine& machine, const std::string& folder) {
  std::map<long, CpuMask> packages;
  std::vector<CpuMask> cores;
  for (int cpu = machine.cpus.first(); cpu >= 0; cpu = machine.cpus.next(cpu)) {
    std::string cpu_folder = folder + "/devices/system/cpu/cpu" + std::to_string(cpu);
    packages[number_in_file(cpu_folder + "/topology/physical_package_id").value_or(0)].set(cpu);
    CpuMask core = read_cpulist(cpu_folder + "/topology/thread_siblings_list") & machine.cpus;
    core.set(cpu);
    if (core.first() == cpu) cores.push_back(std::move(core));
    add_caches(machine, cpu_folder);
  }
  for (auto& [os_index, cpus] : packages) machine.packages.push_back({static_cast<int>(os_index), cpus});
  for (CpuMask& cpus : cores) machine.cores.push_back({-1, -1, -1, std::move(cpus)});
}

void add_numa_nodes(Machine& machine, const std::string& folder) {
  CpuMask numbers = read_cpulist(folder + "/devices/system/node/online");
  for (int number = numbers.first(); number >= 0; number = numbers.next(number)) {
    std::string node_folder = folder + "/devices/system/node/node" + std::to_string(number);
    CpuMask cpus = read_cpulist(node_folder + "/cpulist") & machine.cpus;
    // The line is "Node 0 MemTotal:  4810972 kB".
    std::string total = first_line(node_folder + "/meminfo");
    std::size_t digits = total.find_first_of("0123456789", total.find(':') == std::string::npos ? 0 : total.find(':'));
    std::int64_t bytes = digits == std::string::npos ? 0 : bytes_in(std::string_view(total).substr(digits)) << 10;
    machine.numa_nodes.push_back({number, -1, cpus, bytes});
  }
}

// The device's real folder is below those of its bridges.
std::vector<std::string> bridges_above(const std::string& device_folder) {
  std::error_code failed;
  const auto real = std::filesystem::canonical(device_folder, failed);
  std::vector<std::string> bridges;
  for (auto above = real.parent_path(); !failed && above.has_relative_path(); above = above.parent_path()) {
    const std::string name = above.filename();
    if (name.find('.') == std::string::npos || name.find(':') == std::string::npos) break;
    bridges.push_back(name);
  }
  return bridges;
}

void add_devices(Machine& machine, const std::string& folder) {
  std::string all = folder + "/bus/pci/devices";
  for (const std::string& bus_id : posix::names_in(all)) {
    std::string device_folder = all + "/" + bus_id;
    auto pci_class = static_cast<std::uint16_t>(number_in_file(device_folder + "/class", 16).value_or(0) >> 8);
    auto vendor = static_cast<std::uint16_t>(number_in_file(device_folder + "/vendor", 16).value_or(0));
    bool gpu = parts::is_gpu(pci_class, vendor);
    if (!gpu && !parts::is_network(pci_class)) continue;
    PciDevice device;
    device.kind = gpu ? PciDevice::Kind::gpu : PciDevice::Kind::network;
    device.bus_id = bus_id;
    device.vendor = vendor;
    device.device = static_cast<std::uint16_t>(number_in_file(device_folder + "/device", 16).value_or(0));
    device.near = read_cpulist(device_folder + "/local_cpulist");
    for (const char* kind : {"net", "infiniband"})
      for (const std::string& name : posix::names_in(device_folder + "/" + kind)) device.names.push_back(name);
    device.bridges = bridges_above(device_folder);
    machine.devices.push_back(std::move(device));
  }
}

}  // namespace

Machine read_machine_from_sys(const std::string& folder, const CpuMask& allowed) {
  Machine machine;
  machine.source = folder;
  machine.is_this_machine = true;
  machine.cpus = allowed;
  add_processors(machine, folder);
  add_numa_nodes(machine, folder);
  add_devices(machine, folder);
  parts::connect(machine);
  std::stable_sort(machine.cores.begin(), machine.cores.end(), [](const Core& a, const Core& b) {
    return std::tuple(a.package, a.numa_node, a.cache) < std::tuple(b.package, b.numa_node, b.cache);
  });
  return machine;
}

}  // namespace hvd::topology
