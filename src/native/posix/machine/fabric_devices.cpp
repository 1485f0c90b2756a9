#include "native/posix/machine/fabric_devices.hpp"

#include <utility>

#include "native/posix/files/folder.hpp"

namespace hvd::posix {

std::vector<std::string> fabric_devices(const std::string& sys_class) {
  std::vector<std::string> devices;
  for (const char* kind : {"infiniband", "cxi"})
    for (std::string& name : names_in(sys_class + "/" + kind)) devices.push_back(std::move(name));
  return devices;
}

}  // namespace hvd::posix
