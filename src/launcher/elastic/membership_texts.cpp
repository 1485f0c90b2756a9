// What the membership says about workers, waits, failures and worlds.
#include <algorithm>
#include <utility>

#include "launcher/elastic/membership.hpp"

namespace hvd::launcher {
namespace {

constexpr std::size_t most_texts =
    4;  // of several failures, or of several that the job waits for; the others are counted

std::string place_text(const HostPool::Slot& slot) {
  return "(host " + slot.host + ", slot " + std::to_string(slot.index) + ")";
}

std::string first_of(const std::vector<std::string>& texts) {
  std::string text;
  for (std::size_t i = 0; i < texts.size() && i < most_texts; ++i) text += (i > 0 ? ", " : "") + texts[i];
  if (texts.size() > most_texts) text += ", and " + std::to_string(texts.size() - most_texts) + " more";
  return text;
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
  std::vector<std::string> texts;
  for (const Failure& each : failures_) texts.push_back(each.text);
  return first_of(texts);
}

std::string Membership::text_about_finished() const {
  std::vector<std::string> texts;
  for (Worker worker : world_)
    if (workers_.at(worker).phase == Phase::finished) texts.push_back(describe(worker));
  return first_of(texts) + (texts.size() == 1 ? " has" : " have");
}

std::optional<Membership::Time> Membership::report_due() const {
  if (!is_gathering_ || end_ || settings_.report_every.count() <= 0) return std::nullopt;
  return reported_ + settings_.report_every;
}

void Membership::report_wait(Time now) {
  const auto due = report_due();
  if (!due || now < *due) return;
  reported_ = now;
  auto seconds = [](auto time) { return std::to_string(std::chrono::round<std::chrono::seconds>(time).count()); };
  note("the job has waited for " + seconds(now - since_) + " s for " + first_of(waits_for()) + "; the limit is " +
       seconds(settings_.timeout) + " s (--elastic-timeout)");
}

std::string Membership::text_about_world(std::size_t size) const {
  std::string cause = text_about_failures();
  if (cause.empty()) cause = is_begun_anew() ? "all ranks have begun anew" : "the hosts have changed";
  return cause + ": the job goes on with " + std::to_string(size) + (size == 1 ? " rank" : " ranks");
}

}  // namespace hvd::launcher
