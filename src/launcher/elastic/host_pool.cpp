#include "launcher/elastic/host_pool.hpp"

#include <algorithm>

namespace hvd::launcher {

HostPool::Host& HostPool::host(const std::string& name) {
  auto found = std::find_if(hosts_.begin(), hosts_.end(), [&](const Host& each) { return each.name == name; });
  if (found != hosts_.end()) return *found;
  return hosts_.emplace_back(Host{name, 0, {}, {}});
}

const HostPool::Host* HostPool::find_host(const std::string& name) const {
  auto found = std::find_if(hosts_.begin(), hosts_.end(), [&](const Host& each) { return each.name == name; });
  return found == hosts_.end() ? nullptr : &*found;
}

void HostPool::find(const std::vector<HostSlots>& found) {
  for (Host& each : hosts_) each.slots = 0;
  for (const HostSlots& each : found) host(each.host).slots = each.slots;
}

std::optional<HostPool::Time> HostPool::take_out(Out& out, Time now, double drawn) const {
  ++out.times;
  if (!cooldown_) {
    out.until.reset();
    return out.until;
  }
  const double lower = static_cast<double>(cooldown_->lower.count()),
               upper = static_cast<double>(cooldown_->upper.count());
  double seconds = lower;
  for (int doubled = 1; doubled < out.times && seconds < upper; ++doubled) seconds *= 2;
  seconds = std::clamp(seconds + drawn * lower, lower, upper);
  out.until = now + milliseconds_of(seconds);
  return out.until;
}

std::optional<HostPool::Time> HostPool::take_out(const std::string& name, Time now, double drawn) {
  return take_out(host(name).out, now, drawn);
}

std::optional<HostPool::Time> HostPool::take_out(const std::string& name, int slot, Time now, double drawn) {
  return take_out(host(name).slots_out[slot], now, drawn);
}

bool HostPool::is_out(const std::string& name, Time now) const {
  const Host* host = find_host(name);
  return host != nullptr && host->out.lasts(now);
}

bool HostPool::may_use(const std::string& name, int slot, Time now) const {
  const Host* host = find_host(name);
  if (host == nullptr || slot >= host->slots || host->out.lasts(now)) return false;
  auto out = host->slots_out.find(slot);
  return out == host->slots_out.end() || !out->second.lasts(now);
}

std::vector<HostPool::Slot> HostPool::usable(Time now) const {
  std::vector<Slot> slots;
  for (const Host& host : hosts_)
    for (int slot = 0; slot < host.slots; ++slot)
      if (may_use(host.name, slot, now)) slots.push_back({host.name, slot});
  return slots;
}

std::optional<HostPool::Time> HostPool::next_return(Time now) const {
  std::optional<Time> next;
  auto look = [&](const Out& out) {
    if (out.lasts(now) && out.until && (!next || *out.until < *next)) next = out.until;
  };
  for (const Host& host : hosts_) {
    look(host.out);
    for (const auto& [slot, out] : host.slots_out) look(out);
  }
  return next;
}

std::size_t HostPool::place_of(const std::string& name) const {
  auto found = std::find_if(hosts_.begin(), hosts_.end(), [&](const Host& each) { return each.name == name; });
  return static_cast<std::size_t>(found - hosts_.begin());
}

}  // namespace hvd::launcher
