#include "launcher/hosts.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <sstream>

namespace hvd::launcher {
namespace {

bool is_host_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-';
  });
}

std::optional<int> parse_slots(std::string_view text) {
  int slots = 0;
  auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), slots);
  if (failed != std::errc{} || end != text.data() + text.size() || slots < 1) return std::nullopt;
  return slots;
}

std::string_view first_label(std::string_view name) {
  return name.substr(0, name.find('.'));
}

}  // namespace

Result<std::vector<HostSlots>> parse_hosts(std::string_view text) {
  std::vector<HostSlots> hosts;
  for (std::size_t at = 0; at <= text.size();) {
    std::size_t end = std::min(text.find(',', at), text.size());
    std::string_view item = text.substr(at, end - at);
    std::size_t colon = item.find(':');
    auto slots = colon == std::string_view::npos ? std::nullopt : parse_slots(item.substr(colon + 1));
    if (!slots || !is_host_name(item.substr(0, colon)))
      return Error(ErrorCode::invalid_argument,
                   "hosts must be given as name:slots with at least one slot, separated by "
                   "commas (host1:4,host2:4), but one is '" +
                       std::string(item) + "'");
    hosts.push_back({std::string(item.substr(0, colon)), *slots});
    at = end + 1;
  }
  return hosts;
}

Result<std::vector<HostSlots>> parse_host_file(std::string_view text, const std::string& file_name) {
  std::vector<HostSlots> hosts;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string host, slots_text, more;
    if (!(words >> host)) continue;
    bool well_formed = static_cast<bool>(words >> slots_text) && slots_text.starts_with("slots=") && !(words >> more);
    auto slots = well_formed ? parse_slots(std::string_view(slots_text).substr(6)) : std::nullopt;
    if (!slots || !is_host_name(host))
      return Error(ErrorCode::invalid_argument, file_name + ", line " + std::to_string(number) +
                                                    " must be 'host slots=N' with N of at least 1, not '" + line + "'");
    hosts.push_back({host, *slots});
  }
  if (hosts.empty())
    return Error(ErrorCode::invalid_argument, file_name + " names no host: lines must be 'host slots=N'");
  return hosts;
}

Result<std::vector<Placement>> place(const std::vector<HostSlots>& hosts, int ranks) {
  std::vector<Placement> placements;
  std::map<int, int> hosts_with_local_rank;
  for (std::size_t at = 0; at < hosts.size(); ++at) {
    const HostSlots& host = hosts[at];
    int taken = std::min(host.slots, ranks - static_cast<int>(placements.size()));
    for (int local = 0; local < taken; ++local) {
      Placement placement;
      placement.host = host.host;
      placement.host_index = at;
      placement.rank = Rank{static_cast<std::int32_t>(placements.size())};
      placement.local_rank = local;
      placement.local_size = taken;
      placement.cross_rank = hosts_with_local_rank[local]++;
      placements.push_back(std::move(placement));
    }
  }
  if (static_cast<int>(placements.size()) < ranks)
    return Error(ErrorCode::invalid_argument,
                 "-np " + std::to_string(ranks) + " asks for more ranks than the hosts have slots (" +
                     std::to_string(placements.size()) + "): give more slots or a smaller -np");
  for (Placement& placement : placements) placement.cross_size = hosts_with_local_rank[placement.local_rank];
  return placements;
}

Result<std::vector<HostSlots>> distinct_hosts(const std::vector<HostSlots>& hosts, std::string_view own_name) {
  std::vector<HostSlots> result;
  for (const HostSlots& host : hosts) {
    bool here = is_this_machine(host.host, own_name);
    auto same = std::find_if(result.begin(), result.end(), [&](const HostSlots& other) {
      return other.host == host.host || (here && is_this_machine(other.host, own_name));
    });
    if (same == result.end()) {
      result.push_back(host);
    } else if (here) {
      same->slots += host.slots;
    } else {
      return Error(ErrorCode::invalid_argument, "the host " + host.host +
                                                    " is named twice: name it once, with all of its slots (" +
                                                    host.host + ":" + std::to_string(same->slots + host.slots) + ")");
    }
  }
  return result;
}

bool is_this_machine(std::string_view host, std::string_view own_name) {
  return host == "localhost" || host.starts_with("127.") || host == own_name || first_label(host) == own_name ||
         host == first_label(own_name);
}

}  // namespace hvd::launcher
