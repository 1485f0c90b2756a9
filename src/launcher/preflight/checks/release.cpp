// Checks that all nodes have the same release of Horovod and of its protocol.
#include "bootstrap/meeting/meeting.hpp"
#include "launcher/preflight/check.hpp"
#include "native/posix/plugins/plugin.hpp"

namespace hvd::launcher::preflight {

const Check release_check{"horovod",
                          [](const Place&, Facts& facts) {
                            facts.set("release", std::string("Horovod ") + posix::plugin_stamp(0).version +
                                                     ", protocol " + std::to_string(bootstrap::protocol_version));
                          },
                          [](const Allocation& allocation) {
                            return equal_on_all_nodes(allocation, "release", "release", "none",
                                                      "install one release on all nodes: load the same module "
                                                      "everywhere, or put it on a shared file system");
                          }};

}  // namespace hvd::launcher::preflight
