#include "native/posix/machine/host_identity.hpp"

#include <sys/stat.h>
#include <sys/utsname.h>

#include <fstream>

namespace hvd::posix {

std::string host_name() {
  utsname names{};
  if (::uname(&names) != 0 || names.nodename[0] == '\0') return "unknown";
  return names.nodename;
}

std::string node_id() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  // Without /proc nothing better is known than the name. Two machines of one name would then be taken for one, and
  // would fail to connect.
  if (boot.empty()) boot = "host:" + host_name();
  struct stat network {};
  if (::stat("/proc/self/ns/net", &network) == 0)
    boot += "/" + std::to_string(network.st_dev) + ":" + std::to_string(network.st_ino);
  return boot;
}

}  // namespace hvd::posix
