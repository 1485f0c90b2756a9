// plugin: bridge
// libhorovod_bridge.so: the bridge for programs that start MPI before, or without, the runtime. Opened by what is
// preloaded into them (pmi_bridge/preload.c).
#include <cstdio>
#include <memory>
#include <string>

#include "base/log.hpp"
#include "bootstrap/pmi_bridge/bridge.hpp"
#include "bootstrap/registry.hpp"

namespace hvd::bootstrap {
namespace {

// What it opens lasts as long as the process: MPI_Finalize comes back to it, from whatever thread and however late.
Result<PmiBridge*> open_lasting_bridge() {
  Environment environment = Environment::of_this_process();
  std::vector<std::string> warnings;
  auto config = Config::from(environment, warnings);
  if (!config) return std::move(config.error());
  log::configure(config->log);
  std::unique_ptr<Bootstrap> bootstrap;
  for (const Maker& maker : registry())
    if (std::string_view(maker.name) == "pmix") bootstrap = maker.make();
  auto identity = bootstrap->join(environment, *config);
  if (!identity) return std::move(identity.error());
  log::set_rank(identity->rank.value);
  if (identity->size == 1) return nullptr;
  auto patience = milliseconds_of(config->start_timeout_s);
  auto bridge = PmiBridge::open(*bootstrap.release(), *identity, patience);
  if (!bridge) return std::move(bridge.error());
  return bridge->release();
}

}  // namespace
}  // namespace hvd::bootstrap

// Collective over the job. Fills in the values of PMI_FD, PMI_RANK and PMI_SIZE, texts of at most `bytes`; leaves them
// empty for a job of one. `failure` is set to a text that lasts if it fails.
extern "C" __attribute__((visibility("default"))) void horovod_open_bridge(char* fd, char* rank, char* size,
                                                                           std::size_t bytes, const char** failure) {
  auto bridge = hvd::bootstrap::open_lasting_bridge();
  if (!bridge) {
    *failure = (new std::string(bridge.error().message))->c_str();
    return;
  }
  if (*bridge == nullptr) return;
  std::snprintf(fd, bytes, "%d", (*bridge)->descriptor());
  std::snprintf(rank, bytes, "%d", (*bridge)->identity().rank.value);
  std::snprintf(size, bytes, "%d", (*bridge)->identity().size);
}
