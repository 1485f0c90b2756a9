#pragma once
// The scheduler's job that horovodrun runs in: its hosts, and how many ranks go to each host.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/settings/environment.hpp"
#include "launcher/options/hosts.hpp"
#include "schedulers/selection/selection.hpp"

namespace hvd::launcher {

class JobAround {
 public:
  explicit JobAround(const Environment& environment);

  bool is_a_job() const { return around_.is_a_job(); }
  // True if this is a job of the scheduler with this name in the registry, for example "lsf".
  bool is_of(std::string_view scheduler) const;
  const schedulers::Scheduler& scheduler() const { return *around_.scheduler; }
  const std::string& evidence() const { return around_.evidence; }
  const std::vector<std::string>& passed_over() const { return around_.passed_over; }
  // The hosts are read at the first call, because the scheduler may have to be asked.
  const Result<schedulers::Allocation>& allocation() const;
  std::optional<std::chrono::seconds> time_left() const;
  // As the scheduler's own commands name the job; empty if that is not known.
  std::string number() const { return allocation() ? allocation()->job : ""; }
  // The same, as the job's own variables have it.
  std::string job() const { return scheduler().job(sources()); }
  schedulers::Requeue requeue() const { return scheduler().requeue(sources()); }
  std::optional<int> times_requeued() const { return scheduler().times_requeued(sources()); }

  // Returns the number of slots of the job.
  Result<int> slots() const;
  // Shares the ranks out over the hosts of the job. All hosts are used if there are enough ranks; hosts that get no
  // rank are left out. Fails if the ranks need more slots than there are, unless they may share processors.
  Result<std::vector<HostSlots>> share_out(int ranks, bool may_share_processors) const;
  // Returns all hosts with all of their slots, for an elastic job that begins with so many ranks. If there are more
  // ranks than slots, this is share_out().
  Result<std::vector<HostSlots>> all_hosts(int ranks, bool may_share_processors) const;
  // Returns the name that the scheduler has for a host; nullopt if the host does not belong to the job. If the hosts of
  // the job are not known, this is the name that was given.
  std::optional<std::string> name_of(const std::string& host) const;
  // Fails if one of these hosts does not belong to the job.
  Status check_hosts(const std::vector<HostSlots>& hosts) const;
  // Returns a text like "2 hosts with 4 slots (n1:2, n2:2)".
  std::string description() const;

 private:
  schedulers::Sources sources() const;

  Environment environment_;
  schedulers::Around around_;
  mutable std::optional<Result<schedulers::Allocation>> allocation_;
};

}  // namespace hvd::launcher
