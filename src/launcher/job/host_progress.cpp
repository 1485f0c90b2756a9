#include "launcher/job/host_progress.hpp"

namespace hvd::launcher {

std::optional<std::string> HostProgress::look(const HostLinks& hosts, Clock::time_point now) {
  constexpr std::size_t most_named = 4;
  if (now < next_) return std::nullopt;
  next_ = now + again;
  std::size_t answered = 0, missing = 0;
  std::string names;
  for (const HostLink& host : hosts) {
    if (host.is_ready()) ++answered;
    else if (++missing <= most_named) names += (missing == 1 ? "" : ", ") + host.name;
  }
  bool is_news = told_at_ == Clock::time_point() || answered != told_ || now - told_at_ >= unchanged;
  if (missing == 0 || !is_news) return std::nullopt;
  told_ = answered;
  told_at_ = now;
  if (missing > most_named) names += " and " + std::to_string(missing - most_named) + " more";
  return std::to_string(answered) + " of " + std::to_string(hosts.size()) + " hosts have answered; waiting for " +
         names;
}

}  // namespace hvd::launcher
