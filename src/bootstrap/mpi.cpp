// Ranks of a world that the process has already: the program (mpi4py, a C program) has initialised its MPI. The first
// to be asked, since the launcher's own server has been used by that MPI, and answers only once in some launchers.
#include <memory>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/mpi/over_communicator.hpp"

namespace hvd::bootstrap {
namespace {

class Mpi final : public Bootstrap {
 public:
  const char* name() const override { return "mpi"; }

  // An MPI that knows this process alone was started by somebody who does not speak with it: no world to go by.
  bool detected(const Environment& environment) const override {
    std::vector<std::string> warnings;
    auto config = Config::from(environment, warnings);
    if (!config) return false;
    auto libraries = mpi::mapped_libraries();
    if (std::none_of(libraries.begin(), libraries.end(), [](const mpi::Mapped& it) { return it.is_running; }))
      return false;
    auto process = mpi::Process::open(environment, *config);
    if (!process || !(*process)->is_running()) return false;
    auto world = (*process)->calls().world();
    return world && (*world)->size() > 1;
  }

  Result<Identity> join(const Environment& environment, const Config& config) override {
    auto process = mpi::Process::open(environment, config);
    if (!process) return std::move(process.error());
    // Forced by name it may also be the one to start MPI.
    if (!(*process)->is_running()) HVD_RETURN_IF_ERROR((*process)->start(environment, config));
    auto copy = (*process)->calls().duplicate(nullptr);
    if (!copy) return std::move(copy.error());
    auto patience = std::chrono::milliseconds(static_cast<std::int64_t>(config.start_timeout_s * 1000));
    auto chosen = over_communicator(shared(std::move(*copy)), Deadline::after(patience));
    if (!chosen) return std::move(chosen.error());
    inner_ = std::move(chosen->bootstrap);
    return chosen->identity;
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

std::unique_ptr<Bootstrap> make_mpi() {
  return std::make_unique<Mpi>();
}

}  // namespace hvd::bootstrap
