#pragma once
// What libhorovod_pmix.so hands over: opened with posix::open_plugin<PmixPlugin>("pmix", environment).
#include <memory>

#include "bootstrap/bootstrap.hpp"
#include "native/posix/plugin.hpp"

namespace hvd::pmix {
class Server;  // native/pmix/server.hpp, which like everything outside native/pmix sees no header of PMIx
}

namespace hvd::bootstrap {

struct PmixPlugin {
  posix::PluginStamp stamp;
  std::unique_ptr<Bootstrap> (*make_bootstrap)();
  // The launcher's half: native/pmix/server.cpp defines `std::unique_ptr<Server>
  // hvd::pmix::make_server()`; its table entry is filled in plugin.cpp. Null in a plugin built without it.
  std::unique_ptr<pmix::Server> (*make_server)();
};

}  // namespace hvd::bootstrap
