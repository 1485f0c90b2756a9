#pragma once
// What libhorovod_pmix.so hands over: opened with posix::open_plugin<PmixPlugin>("pmix", environment).
#include <memory>

#include "bootstrap/bootstrap.hpp"
#include "native/posix/plugin.hpp"

namespace hvd::pmix {
class Server;  // native/pmix/server.hpp; like everything outside of native/pmix it sees no header of PMIx
}

namespace hvd::bootstrap {

struct PmixPlugin {
  posix::PluginStamp stamp;
  std::unique_ptr<Bootstrap> (*make_bootstrap)();
  // For the launcher: native/pmix/server.cpp defines `std::unique_ptr<Server> hvd::pmix::make_server()`, and plugin.cpp
  // fills in this entry. Null in a plugin that was built without it.
  std::unique_ptr<pmix::Server> (*make_server)();
};

}  // namespace hvd::bootstrap
