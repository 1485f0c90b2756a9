#include "launcher/job/host_links.hpp"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>

#include "base/text/comma_list.hpp"
#include "launcher/agent/local_agent.hpp"
#include "launcher/agent/remote_agent.hpp"
#include "native/posix/machine/host_identity.hpp"

namespace hvd::launcher {

// The agent of this machine is made first, so that it inherits nothing that belongs to the other links.
Status HostLinks::reach(const JobOptions& options, const AgentSettings& settings) {
  links_.resize(options.hosts.size());
  plans_ = options.hosts;
  std::size_t first_host = options.placements.front().host_index;
  for (std::size_t at = 0; at < links_.size(); ++at) {
    if (!options.hosts[at].reach.empty()) continue;
    auto agent = start_local_agent(settings, at == first_host && !(options.site && options.site->packs_input));
    if (!agent) return agent.error();
    links_[at].name = posix::host_name();
    links_[at].is_here = true;
    links_[at].process = agent->process;
    links_[at].channel = std::move(agent->channel);
  }
  for (std::size_t at = 0; at < links_.size(); ++at) {
    if (options.hosts[at].reach.empty()) continue;
    links_[at].name = options.hosts[at].name;
    links_[at].state = HostLink::State::waiting;
  }
  for (const Placement& placement : options.placements) links_[placement.host_index].ranks.push_back(placement.rank);
  options_ = &options;
  settings_ = &settings;
  return {};
}

std::size_t HostLinks::add(const HostPlan& plan, int slots) {
  HostLink& link = links_.emplace_back();
  link.name = plan.name;
  link.state = HostLink::State::waiting;
  for (int slot = 0; slot < slots; ++slot) link.ranks.emplace_back(slot);
  plans_.push_back(plan);
  return links_.size() - 1;
}

Status HostLinks::reach_more(const std::function<void(std::size_t at)>& greet) {
  for (; next_ < links_.size(); ++next_) {
    HostLink& link = links_[next_];
    if (link.is_waiting() && is_held_up()) break;
    reached_.push_back(Clock::now());
    if (!link.is_waiting()) continue;
    const HostPlan plan = plans_[next_];
    std::vector<std::string> command = plan.reach;
    const std::string& program = options_->network.remote_program;
    if (plan.takes_words) {
      auto words = remote_agent_words(program, options_->grace);
      command.insert(command.end(), words.begin(), words.end());
    } else {
      command.push_back(remote_agent_command(program, options_->grace));
    }
    auto reached = reach_host(plan.name, command, settings_->inheritance);
    if (!reached) return reached.error();
    reached->ranks = std::move(link.ranks);
    reached->trial = plan.trial;
    link = std::move(*reached);
    greet(next_);
  }
  return {};
}

// True if the allowed number of commands is on its way.
bool HostLinks::is_held_up() const {
  Clock::time_point since = Clock::now() - long_time;
  std::size_t under_way = 0;
  for (std::size_t at = 0; at < next_; ++at)
    under_way += links_[at].state == HostLink::State::reached_for && !links_[at].is_here && reached_[at] > since;
  return under_way >= most_at_once;
}

bool HostLinks::are_all_ready() const {
  return std::all_of(links_.begin(), links_.end(), [](const HostLink& link) { return link.is_ready(); });
}

bool HostLinks::are_all_gone() const {
  return std::all_of(links_.begin(), links_.end(), [](const HostLink& link) { return link.is_gone(); });
}

Status HostLinks::check_nodes() const {
  for (const HostLink& link : links_)
    for (const HostLink& other : links_)
      if (&other < &link && other.node_id == link.node_id)
        return Error(ErrorCode::invalid_argument, "the hosts " + other.name + " and " + link.name +
                                                      " are the same machine: name it once, with all of its slots");
  return {};
}

void HostLinks::add_to(std::vector<pollfd>& polled) const {
  for (const HostLink& link : links_) {
    polled.push_back({link.channel.closed() ? -1 : link.channel.descriptor(), link.channel.wants(), 0});
    polled.push_back({link.errors.get(), POLLIN, 0});
  }
}

void HostLinks::receive(const OnReport& on_report) {
  for (HostLink& link : links_) receive(link, on_report);
}

void HostLinks::receive(HostLink& link, const OnReport& on_report) {
  for (const Report& report : link.channel.pump()) {
    link.note(report);
    on_report(link, report);
  }
}

void HostLinks::forward(int signal) {
  for (HostLink& link : links_)
    if (!link.is_gone()) link.send(Forward{signal});
}

void HostLinks::order_end(int signal, std::chrono::milliseconds grace) {
  for (HostLink& link : links_) {
    if (link.is_gone()) continue;
    if (link.is_waiting()) link.be_gone();
    else if (link.is_here || link.channel.was_greeted())
      link.send(End{signal, static_cast<std::int32_t>(grace.count())});
    else link.signal_way(SIGTERM);  // no agent is there yet, so this ends ssh
  }
}

void HostLinks::drop_unreached() {
  for (HostLink& link : links_)
    if (link.process == 0) link.be_gone();
}

void HostLinks::give_credit() {
  for (HostLink& link : links_) {
    if (link.owed_credit == 0) continue;
    link.send(Credit{link.owed_credit});
    link.owed_credit = 0;
  }
}

void HostLinks::ask_all() {
  for (HostLink& link : links_) {
    if (!link.is_ready()) continue;
    link.was_asked = true;
    link.send(Ask{});
  }
}

bool HostLinks::is_answer_awaited() const {
  return std::any_of(links_.begin(), links_.end(),
                     [](const HostLink& link) { return link.was_asked && !link.is_gone() && !link.channel.closed(); });
}

// Waits for the processes of all links, so that none is left when horovodrun has ended.
void HostLinks::dismiss(Deadline deadline) {
  for (HostLink& link : links_)
    if (link.is_gone() && link.process != 0 && !link.channel.closed()) link.send(Dismiss{});
  for (HostLink& link : links_) {
    if (!link.is_gone() || link.process == 0) continue;
    if (link.is_here) {
      if (!link.is_taken_over) ::waitpid(link.process, nullptr, 0);
      continue;
    }
    while (::waitpid(link.process, &link.wait_status, WNOHANG) == 0) {
      if (deadline.passed()) link.signal_way(SIGKILL);
      ::poll(nullptr, 0, 2);
    }
  }
}

}  // namespace hvd::launcher
