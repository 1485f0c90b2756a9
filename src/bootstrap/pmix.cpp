// The bootstrap of ranks that a PMIx launcher started: srun --mpi=pmix, jsrun, prterun, mpirun of Open MPI, our own
// horovodrun. The code that speaks PMIx is in a plugin (pmix/plugin.cpp). join() opens the plugin, so it is opened only
// if it is wanted.
//
// A server that is not ours is asked only for this process's rank, the number of ranks and one exchange of values.
// PRRTE 3 hangs if a fence follows another at once. Slurm 22.05 and Open MPI 4.1 lose values of clients that finalised
// and came back. srun ends the whole step if a process exits without having finalised. Therefore a process has one
// client in its life and finalises it at exit. All later exchanges use a store that rank 0 serves
// (store/later_meetings.hpp). The address of that store travels in the first exchange.
//
// In a job of horovodrun the later exchanges use horovodrun's local store (store/local_store.hpp). A PMIx client keeps
// every value that it has put or got until it ends, so a process that starts its runtime again and again would grow.
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/launch/launch.hpp"
#include "bootstrap/pmix/plugin.hpp"
#include "bootstrap/store/later_meetings.hpp"
#include "bootstrap/store/local_store.hpp"
#include "native/mpi/process.hpp"

namespace hvd::bootstrap {
namespace {

constexpr const char* invitation_key = "hvd.later";

// A job of another launcher than horovodrun. There is one such object in the life of the process.
struct ForeignJob {
  std::unique_ptr<Bootstrap> client;
  Identity identity;
  std::set<std::string, std::less<>> first_keys;  // keys of the one exchange through PMIx
  bool exchanged = false;
  LaterMeetings later;
  pid_t process = 0;
};
ForeignJob* foreign_job = nullptr;

class Pmix final : public Bootstrap {
 public:
  const char* name() const override { return "pmix"; }
  bool detected(const Environment& environment) const override {
    if (!environment.has("PMIX_NAMESPACE") || !environment.has("PMIX_RANK")) return false;
    // horovodrun clears what other launchers have set. A PMIx server that is not horovodrun's in a rank of horovodrun
    // was started by Open MPI 4 for this rank alone, because Open MPI found no server that suits it.
    bool is_of_horovodrun =
        environment.has(local_store::address_variable) || environment.has("HOROVOD_GLOO_RENDEZVOUS_ADDR");
    if (is_of_horovodrun && !environment.get("PMIX_NAMESPACE")->starts_with("horovodrun-") && mpi::is_one_running())
      return false;
    // False for example for the ranks of MPICH's mpiexec inside a rank of srun --mpi=pmix: they inherit the outer
    // PMIx.
    auto launch = innermost_launch(environment);
    return !launch || row_of(launch->launcher).serves != Serves::pmi;
  }

  Result<Identity> join(const Environment& environment, const Config& config) override {
    bool is_ours = environment.has(local_store::address_variable);
    if (!is_ours && foreign_job != nullptr) {
      foreign_ = foreign_job;
      return foreign_->identity;
    }
    auto plugin = posix::open_plugin<PmixPlugin>("pmix", environment);
    if (!plugin) return std::move(plugin.error());
    auto client = (*plugin)->make_bootstrap();
    auto identity = client->join(environment, config);
    if (!identity) return identity;
    if (is_ours) {
      inner_ = std::move(client);
      store_address_ = *environment.get(local_store::address_variable);
      store_secret_ = environment.get(local_store::secret_variable).value_or("");
      identity_ = *identity;
      return identity;
    }
    foreign_job = new ForeignJob{std::move(client), *identity, {}, false, {}, ::getpid()};
    foreign_ = foreign_job;
    std::atexit([] {
      if (foreign_job->process == ::getpid()) delete foreign_job;
    });
    if (identity->size > 1 && identity->rank == Rank{0})
      HVD_RETURN_IF_ERROR(foreign_->client->put(invitation_key, foreign_->later.open(*identity, config)));
    return identity;
  }

  Status put(std::string_view key, ConstBytes value) override {
    if (foreign_ == nullptr) return inner_->put(key, value);
    if (foreign_->exchanged) return foreign_->later.put(key, value);
    foreign_->first_keys.emplace(key);
    return foreign_->client->put(key, value);
  }

  // All ranks put their values under the same keys, so `first_keys` of this rank tells where another rank's value is.
  Result<Buffer> get(Rank from, std::string_view key, Deadline deadline) override {
    if (foreign_ == nullptr) return inner_->get(from, key, deadline);
    if (foreign_->first_keys.contains(key)) return foreign_->client->get(from, key, deadline);
    return foreign_->later.get(from, key);
  }

  Status fence(Deadline deadline) override {
    if (foreign_ == nullptr) return inner_->fence(deadline);
    if (foreign_->exchanged) return foreign_->later.fence(deadline);
    HVD_RETURN_IF_ERROR(foreign_->client->fence(deadline));
    foreign_->exchanged = true;
    if (foreign_->identity.size == 1 || foreign_->identity.rank == Rank{0}) return {};
    auto invitation = foreign_->client->get(Rank{0}, invitation_key, deadline);
    if (!invitation) return std::move(invitation.error());
    return foreign_->later.invited(foreign_->identity, *invitation);
  }

  std::optional<Result<Cards>> exchange(std::string_view key, const Card& card, Deadline deadline) override {
    if (foreign_ == nullptr) return exchange_in_own_job(key, card, deadline);
    if (!foreign_->exchanged) return std::nullopt;
    return foreign_->later.exchange(key, card, deadline);
  }

  void abort(std::string_view reason) noexcept override {
    (foreign_ != nullptr ? foreign_->client : inner_)->abort(reason);
  }

 private:
  std::optional<Result<Cards>> exchange_in_own_job(std::string_view key, const Card& card, Deadline deadline) {
    if (!std::exchange(has_exchanged_, true)) return std::nullopt;
    auto store = LocalStoreClient::join(store_address_, store_secret_, identity_.rank, identity_.size, deadline);
    if (!store) return std::move(store.error());
    auto cards = (*store)->exchange(key, card, deadline);
    (void)(*store)->leave(deadline);  // another program may take this rank's place before the next exchange
    return cards;
  }

  // In a job of horovodrun:
  std::unique_ptr<Bootstrap> inner_;  // set by join()
  std::string store_address_, store_secret_;
  Identity identity_;
  bool has_exchanged_ = false;  // through PMIx

  ForeignJob* foreign_ = nullptr;  // set by join() in a job of another launcher
};

}  // namespace

std::unique_ptr<Bootstrap> make_pmix() {
  return std::make_unique<Pmix>();
}

}  // namespace hvd::bootstrap
