// What the membership says about workers, waits, failures and worlds.
#include <utility>

#include "launcher/elastic/membership.hpp"

namespace hvd::launcher {
namespace {

constexpr std::size_t most_failures_named = 4;  // of several failures; the others are counted

std::string place_text(const HostPool::Slot& slot) {
  return "(host " + slot.host + ", slot " + std::to_string(slot.index) + ")";
}

}  // namespace

std::string Membership::describe(Worker worker) const {
  auto found = workers_.find(worker);
  if (found == workers_.end()) return "a process that horovodrun has not started";
  const Member& member = found->second;
  if (member.rank) return "rank " + std::to_string(member.rank->value) + " " + place_text(member.slot);
  return "a process without a rank " + place_text(member.slot);
}

std::vector<std::string> Membership::waits_for() const {
  std::vector<std::string> whom;
  if (end_ || !is_gathering_) return whom;
  for (Worker worker : world_)
    if (workers_.at(worker).phase == Phase::in_world) whom.push_back(describe(worker) + " to end its round");
  if (!whom.empty()) return whom;
  for (const auto& [worker, member] : workers_)
    if (member.phase == Phase::starting) whom.push_back(describe(worker) + " to call hvd.init()");
  if (!has_found_hosts_) {
    whom.emplace_back("the first hosts");
  } else if (std::cmp_less(count(Phase::waiting), needed())) {
    whom.push_back("hosts: " + std::to_string(needed()) + " ranks are needed, " +
                   std::to_string(count(Phase::waiting)) + " are ready");
  } else {
    whom.emplace_back("a host that has the state of the training");
  }
  return whom;
}

std::string Membership::text_about_failures() const {
  if (failures_.empty()) return has_failed_round_ ? "a round has failed, and no process has ended" : "";
  std::string text;
  for (std::size_t i = 0; i < failures_.size() && i < most_failures_named; ++i)
    text += (i > 0 ? ", " : "") + failures_[i].text;
  if (failures_.size() > most_failures_named)
    text += ", and " + std::to_string(failures_.size() - most_failures_named) + " more";
  return text;
}

std::string Membership::text_about_world(std::size_t size) const {
  std::string cause = text_about_failures();
  if (cause.empty()) cause = is_begun_anew() ? "all ranks have begun anew" : "the hosts have changed";
  return cause + ": the job goes on with " + std::to_string(size) + (size == 1 ? " rank" : " ranks");
}

}  // namespace hvd::launcher
