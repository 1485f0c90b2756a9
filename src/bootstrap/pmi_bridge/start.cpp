#include "bootstrap/pmi_bridge/start.hpp"

#include <cstdlib>

namespace hvd::bootstrap {
namespace {

// The MPI library reads the process's own environment.
//
// NOLINTBEGIN(concurrency-mt-unsafe)
//
// Gives a variable of the process another value, or removes it, as long as this object lives.
class Replaced {
 public:
  Replaced(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    if (value != nullptr) ::setenv(name, value, 1);
    else ::unsetenv(name);
  }
  ~Replaced() {
    if (before_) ::setenv(name_, before_->c_str(), 1);
    else ::unsetenv(name_);
  }
  Replaced(const Replaced&) = delete;
  Replaced& operator=(const Replaced&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};
// NOLINTEND(concurrency-mt-unsafe)

}  // namespace

Status start_over_bridge(mpi::Process& process, Bootstrap& bootstrap, const Identity& identity,
                         const std::string& space, const std::vector<std::string>& nodes,
                         const Environment& environment, const Config& config) {
  auto patience = milliseconds_of(config.start_timeout_s);
  auto opened = PmiBridge::open(bootstrap, identity, space, nodes, patience);
  if (!opened) return std::move(opened.error());
  PmiBridge* bridge = opened->release();  // the library uses the bridge again when the process exits
  // PMIX_NAMESPACE is hidden because MPICH 5 accepts either PMI or PMIx, not both. Other libraries that look for the
  // launcher's protocol do the same.
  Replaced fd("PMI_FD", std::to_string(bridge->descriptor()).c_str());
  Replaced rank("PMI_RANK", std::to_string(identity.rank.value).c_str());
  Replaced size("PMI_SIZE", std::to_string(identity.size).c_str());
  Replaced pmix("PMIX_NAMESPACE", nullptr);
  return process.start(environment, config);
}

}  // namespace hvd::bootstrap
