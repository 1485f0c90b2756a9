// Ranks started by a PMIx launcher: srun --mpi=pmix, jsrun, prterun, mpirun of Open MPI 5, our own horovodrun.
// What speaks PMIx lies in a plugin (pmix_plugin.cpp) that is opened by join(), so only where it is wanted.
#include <memory>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/launch.hpp"
#include "bootstrap/pmix_plugin.hpp"

namespace hvd::bootstrap {
namespace {

class Pmix final : public Bootstrap {
 public:
  const char* name() const override { return "pmix"; }
  bool detected(const Environment& environment) const override {
    if (!environment.has("PMIX_NAMESPACE") || !environment.has("PMIX_RANK")) return false;
    // The ranks of an mpiexec of MPICH's inside of a rank of srun --mpi=pmix, say, inherit the outer one's PMIx.
    auto launch = innermost_launch(environment);
    return !launch || launch->launcher != Launcher::hydra;
  }

  Result<Identity> join(const Environment& environment, const Config& config) override {
    auto plugin = posix::open_plugin<PmixPlugin>("pmix", environment);
    if (!plugin) return std::move(plugin.error());
    inner_ = (*plugin)->make_bootstrap();
    return inner_->join(environment, config);
  }
  Status put(std::string_view key, ConstBytes value) override { return inner_->put(key, value); }
  Result<Buffer> get(Rank from, std::string_view key, Deadline deadline) override {
    return inner_->get(from, key, deadline);
  }
  Status fence(Deadline deadline) override { return inner_->fence(deadline); }
  void abort(std::string_view reason) noexcept override { inner_->abort(reason); }

 private:
  std::unique_ptr<Bootstrap> inner_;  // after join()
};

}  // namespace

std::unique_ptr<Bootstrap> make_pmix() {
  return std::make_unique<Pmix>();
}

}  // namespace hvd::bootstrap
