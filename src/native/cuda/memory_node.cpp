#include "native/cuda/memory_node.hpp"

#include <string_view>

#include "base/text/number.hpp"
#include "native/posix/files/text_file.hpp"

namespace hvd::cuda {

int memory_node_of(const std::string& bus_id, const std::string& root) {
  const auto text = posix::read_text(root + "/sys/bus/pci/devices/" + bus_id + "/numa_node");
  if (bus_id.empty() || !text) return -1;
  const std::string_view line = *text;
  return number_in<int>(line.substr(0, line.find('\n'))).value_or(-1);
}

}  // namespace hvd::cuda
