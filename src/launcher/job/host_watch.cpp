#include "launcher/job/host_watch.hpp"

#include <signal.h>

#include <algorithm>

#include "launcher/agent/remote_agent.hpp"

namespace hvd::launcher {

Status HostWatch::open_lifelines(const NetworkOptions& network, std::size_t most) {
  auto lifelines =
      Lifelines::open({std::max(hosts_.size(), most), network.interfaces, network.ports, network.lifeline_patience});
  if (!lifelines) return lifelines.error();
  lifelines_ = std::move(*lifelines);
  return {};
}

std::vector<HostNews> HostWatch::look_at_links(const std::string& program) {
  std::vector<HostNews> news;
  for (HostLink& host : hosts_) {
    if (host.is_here) {
      if (host.channel.closed() && !host.is_gone() && !host.is_taken_over)
        news.push_back({HostNews::Kind::taken_over, &host, ""});
      continue;
    }
    for (std::string& line : host.read_complaints())
      news.push_back({HostNews::Kind::complaint, &host, std::move(line)});
    host.reap();
    bool is_another_version = !host.channel.was_greeted() && !host.channel.other_greeting(greeting_beginning).empty();
    if (host.is_gone() || (!host.is_cut() && !is_another_version)) continue;
    if (host.is_ready())
      news.push_back(
          {HostNews::Kind::lost, &host, host.process > 0 ? "its agent is gone" : "the connection to its agent ended"});
    else if (host.process == 0 || is_another_version)
      news.push_back({HostNews::Kind::unusable, &host, host.why_not(program)});
    if (host.process == 0) host.be_gone();
  }
  return news;
}

std::vector<HostNews> HostWatch::look_at_lifelines(const HostLinks::OnReport& on_report) {
  std::vector<HostNews> news;
  if (lifelines_ == nullptr) return news;
  for (const Lifelines::Loss& loss : lifelines_->serve()) {
    HostLink& host = hosts_[loss.host];
    if (!host.is_gone()) hosts_.receive(host, on_report);
    if (host.is_gone()) continue;
    if (loss.of_agent) {  // the process above the agent cleans up on that host, and then our ssh ends
      news.push_back({HostNews::Kind::lost, &host, "its agent is gone"});
      continue;
    }
    news.push_back({HostNews::Kind::lost, &host, "nothing comes from its host any more"});
    host.signal_way(SIGKILL);
    host.channel.close();
    host.be_gone();
  }
  return news;
}

}  // namespace hvd::launcher
