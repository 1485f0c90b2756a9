#include "native/hwloc/topology.hpp"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>

namespace hvd::hwloc {
namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const noexcept { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;

posix::CpuMask mask_of(hwloc_const_bitmap_t set) {
  posix::CpuMask mask;
  // a weight of -1 means an infinite set, which tells nothing
  if (set == nullptr || hwloc_bitmap_weight(set) < 0) return mask;
  for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu)) mask.set(cpu);
  return mask;
}

// What is to be left out must be set before loading. By default hwloc leaves out all I/O, even from XML.
Status configure(hwloc_topology_t topology, bool asks_drivers) {
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  for (hwloc_obj_type_t unused :
       {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L1ICACHE, HWLOC_OBJ_L2ICACHE, HWLOC_OBJ_L3ICACHE, HWLOC_OBJ_MISC})
    hwloc_topology_set_type_filter(topology, unused, HWLOC_TYPE_FILTER_KEEP_NONE);
  // These components would start CUDA, OpenCL and similar libraries, or ask an X server. That is slow, and harmful on a
  // GPU in exclusive mode. NVIDIA's management library only takes time.
  for (const char* component : {"cuda", "opencl", "rsmi", "levelzero", "gl"})
    hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  if (!asks_drivers) hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "nvml");
  // Without this flag some of hwloc's methods rebind the calling thread for a moment.
  if (hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING) != 0)
    return system_error("hwloc_topology_set_flags", errno);
  return {};
}

Error unreadable(const Source& source) {
  std::string what = source.xml_path.empty() ? "the given text" : "\"" + source.xml_path + "\"";
  return {ErrorCode::invalid_argument,
          what + " is no topology that hwloc " + std::to_string(hwloc_get_api_version() >> 16) +
              " can read: expected XML as lstopo --of xml of the same major version writes it"};
}

// The source is set by calls, because calls report a failure. hwloc ignores a bad HWLOC_XMLFILE silently.
Status choose_source(hwloc_topology_t topology, const Source& source) {
  int outcome = 0;
  if (!source.xml_path.empty()) outcome = hwloc_topology_set_xml(topology, source.xml_path.c_str());
  else if (!source.xml_text.empty())
    outcome =
        hwloc_topology_set_xmlbuffer(topology, source.xml_text.c_str(), static_cast<int>(source.xml_text.size() + 1));
  if (outcome != 0) return unreadable(source);
  return {};
}

std::string address_of(const hwloc_obj_attr_u::hwloc_pcidev_attr_s& pci) {
  char bus_id[32];
  std::snprintf(bus_id, sizeof bus_id, "%04x:%02x:%02x.%x", static_cast<unsigned>(pci.domain),
                static_cast<unsigned>(pci.bus), static_cast<unsigned>(pci.dev), static_cast<unsigned>(pci.func));
  return bus_id;
}

Object pci_device(hwloc_topology_t topology, hwloc_obj_t found) {
  Object object;
  object.kind = Kind::pci_device;
  const auto& pci = found->attr->pcidev;
  object.bus_id = address_of(pci);
  object.pci_class = pci.class_id;
  object.vendor = pci.vendor_id;
  object.device = pci.device_id;
  if (hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology, found)) object.cpus = mask_of(near->cpuset);
  for (hwloc_obj_t child = found->io_first_child; child != nullptr; child = child->next_sibling)
    if (child->type == HWLOC_OBJ_OS_DEVICE && child->name != nullptr) object.names.emplace_back(child->name);
  for (hwloc_obj_t above = found->parent; above != nullptr && above->type == HWLOC_OBJ_BRIDGE; above = above->parent)
    if (above->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI)
      object.bridges.push_back(address_of(above->attr->bridge.upstream.pci));
  return object;
}

// hwloc's matrix has the sum of the links between two devices in MB/s, once for each direction. GPUs that are joined by
// NVSwitches have links only to those.
class NvLinks {
 public:
  explicit NvLinks(hwloc_topology_t topology) : topology_(topology) {
    unsigned count = 1;
    if (hwloc_distances_get_by_name(topology, "NVLinkBandwidth", &count, &matrix_, 0) != 0 || count == 0)
      matrix_ = nullptr;
  }
  ~NvLinks() {
    if (matrix_ != nullptr) hwloc_distances_release(topology_, matrix_);
  }
  NvLinks(const NvLinks&) = delete;
  NvLinks& operator=(const NvLinks&) = delete;

  void add_to(Reading& reading) const {
    reading.knows_nvlinks = matrix_ != nullptr;
    if (matrix_ == nullptr) return;
    for (unsigned from = 0; from < matrix_->nbobjs; ++from)
      for (unsigned to = from + 1; to < matrix_->nbobjs; ++to) {
        const std::string one = address(from), other = address(to);
        if (one.empty() || other.empty() || one == other) continue;
        const std::uint64_t direct = at(from, to), switched = std::min(to_switches(from), to_switches(to));
        if (direct + switched > 0)
          reading.nvlinks.push_back({one, other, static_cast<std::int64_t>(direct + switched)});
      }
  }

 private:
  std::uint64_t at(unsigned from, unsigned to) const {
    return matrix_->values[static_cast<std::size_t>(from) * matrix_->nbobjs + to];
  }
  bool is_switch(unsigned index) const {
    const hwloc_obj_t object = matrix_->objs[index];
    return object != nullptr && object->subtype != nullptr && std::string_view(object->subtype) == "NVSwitch";
  }
  std::uint64_t to_switches(unsigned from) const {
    std::uint64_t sum = 0;
    for (unsigned to = 0; to < matrix_->nbobjs; ++to)
      if (is_switch(to)) sum += at(from, to);
    return sum;
  }
  // That of a GPU; "" for everything else.
  std::string address(unsigned index) const {
    if (is_switch(index)) return "";
    hwloc_obj_t object = matrix_->objs[index];
    while (object != nullptr && object->type == HWLOC_OBJ_OS_DEVICE) object = object->parent;
    return object != nullptr && object->type == HWLOC_OBJ_PCI_DEVICE ? address_of(object->attr->pcidev) : "";
  }

  hwloc_topology_t topology_;
  hwloc_distances_s* matrix_ = nullptr;
};

void add_all(hwloc_topology_t topology, hwloc_obj_type_t type, Kind kind, std::vector<Object>& objects) {
  for (hwloc_obj_t found = nullptr; (found = hwloc_get_next_obj_by_type(topology, type, found)) != nullptr;) {
    if (type == HWLOC_OBJ_PCI_DEVICE) {
      objects.push_back(pci_device(topology, found));
      continue;
    }
    Object object;
    object.kind = kind;
    object.os_index = found->os_index == HWLOC_UNKNOWN_INDEX ? -1 : static_cast<int>(found->os_index);
    object.cpus = mask_of(found->cpuset);
    if (kind == Kind::numa_node) object.bytes = static_cast<std::int64_t>(found->attr->numanode.local_memory);
    if (kind == Kind::cache) {
      object.bytes = static_cast<std::int64_t>(found->attr->cache.size);
      object.cache_level = static_cast<int>(found->attr->cache.depth);
    }
    objects.push_back(std::move(object));
  }
}

}  // namespace

Result<Reading> read(const Source& source) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return system_error("hwloc_topology_init", errno);
  Topology topology(raw);
  HVD_RETURN_IF_ERROR(configure(raw, source.asks_drivers));
  HVD_RETURN_IF_ERROR(choose_source(raw, source));
  if (hwloc_topology_load(raw) != 0) {
    if (!source.xml_path.empty() || !source.xml_text.empty()) return unreadable(source);
    return system_error("hwloc could not read the machine (hwloc_topology_load)", errno);
  }

  Reading reading;
  for (auto [type, kind] :
       {std::pair(HWLOC_OBJ_PACKAGE, Kind::package), std::pair(HWLOC_OBJ_NUMANODE, Kind::numa_node),
        std::pair(HWLOC_OBJ_L2CACHE, Kind::cache), std::pair(HWLOC_OBJ_L3CACHE, Kind::cache),
        std::pair(HWLOC_OBJ_L4CACHE, Kind::cache), std::pair(HWLOC_OBJ_CORE, Kind::core),
        std::pair(HWLOC_OBJ_PU, Kind::processor), std::pair(HWLOC_OBJ_PCI_DEVICE, Kind::pci_device)})
    add_all(raw, type, kind, reading.objects);
  NvLinks(raw).add_to(reading);
  reading.cpus = mask_of(hwloc_topology_get_allowed_cpuset(raw));
  reading.is_this_machine = hwloc_topology_is_thissystem(raw) != 0;
  unsigned version = hwloc_get_api_version();
  reading.version = "hwloc " + std::to_string(version >> 16) + "." + std::to_string((version >> 8) & 255) + "." +
                    std::to_string(version & 255);
  return reading;
}

}  // namespace hvd::hwloc

extern "C" __attribute__((visibility("default"))) const void* horovod_hwloc_plugin() {
  static const hvd::hwloc::Plugin table = {hvd::posix::plugin_stamp(sizeof(hvd::hwloc::Plugin)), &hvd::hwloc::read};
  return &table;
}
