#pragma once
// The table that libhorovod_pmix.so hands over. It is opened with posix::open_plugin<PmixPlugin>("pmix", environment).
#include <memory>

#include "bootstrap/bootstrap.hpp"
#include "native/posix/plugins/plugin.hpp"

namespace hvd::pmix {
class Server;  // declared in native/pmix/server.hpp; only native/pmix includes headers of PMIx
}

namespace hvd::bootstrap {

struct PmixPlugin {
  posix::PluginStamp stamp;
  std::unique_ptr<Bootstrap> (*make_bootstrap)();
  // For the launcher. native/pmix/server.cpp defines `std::unique_ptr<Server> hvd::pmix::make_server()`, and plugin.cpp
  // stores that function here. The pointer is null in a plugin that was built without the server.
  std::unique_ptr<pmix::Server> (*make_server)();
};

}  // namespace hvd::bootstrap
