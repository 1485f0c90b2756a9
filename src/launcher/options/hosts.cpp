#include "launcher/options/hosts.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "base/text/number.hpp"
#include "native/posix/machine/host_identity.hpp"
#include "native/posix/sockets/tcp_address.hpp"

namespace hvd::launcher {
namespace {

// A name that begins with a dash would be an option to ssh and to every launcher.
bool is_host_name(std::string_view text) {
  return !text.empty() && text.front() != '-' && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-';
  });
}

// Reads a name or an address. An IPv6 address may have brackets. Its shortest form is returned, so that equal addresses
// are recognised.
std::optional<std::string> read_host(std::string text) {
  if (is_host_name(text)) return text;
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  auto address = posix::TcpAddress::parse("[" + text + "]:1");
  return address ? std::optional(address->host()) : std::nullopt;
}

// More slots than any host has are refused, so that sums of them do not overflow.
std::optional<int> parse_slots(std::string_view text) {
  constexpr int most = 1'000'000;
  auto slots = number_in<int>(text);
  return slots && *slots >= 0 && *slots <= most ? slots : std::nullopt;
}

// Compares names as the network does: capitals do not matter, and a dot at the end does not matter.
bool is_same_name(std::string_view a, std::string_view b) {
  if (a.ends_with('.')) a.remove_suffix(1);
  if (b.ends_with('.')) b.remove_suffix(1);
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

std::string_view first_label(std::string_view name) {
  return name.substr(0, name.find('.'));
}

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  return text.substr(0, text.find_last_not_of(blanks) + 1);
}

// Reads "slots=4" or "slots = 4".
std::optional<int> slots_in(std::string_view text) {
  if (!text.starts_with("slots")) return std::nullopt;
  text = without_blanks(text.substr(5));
  return text.starts_with('=') ? parse_slots(without_blanks(text.substr(1))) : std::nullopt;
}

// Removes hosts without slots. They may stay in a list, but get no ranks.
Status leave_out_hosts_without_slots(std::vector<HostSlots>& hosts, const std::string& list) {
  std::erase_if(hosts, [](const HostSlots& host) { return host.slots == 0; });
  if (!hosts.empty()) return {};
  return Error(ErrorCode::invalid_argument, "of the hosts in " + list + " no host has a slot");
}

}  // namespace

std::optional<HostLine> read_host_line(std::string_view text) {
  if (auto host = read_host(std::string(text))) return HostLine{*host};
  const std::size_t colon = text.find(':', text.starts_with('[') ? std::min(text.find(']'), text.size()) : 0);
  if (colon == std::string_view::npos) return std::nullopt;
  auto slots = parse_slots(text.substr(colon + 1));
  auto host = read_host(std::string(text.substr(0, colon)));
  return slots && host ? std::optional(HostLine{*host, slots}) : std::nullopt;
}

Result<std::vector<HostSlots>> parse_hosts(std::string_view text) {
  std::vector<HostSlots> hosts;
  for (std::size_t at = 0; at <= text.size();) {
    std::size_t end = std::min(text.find(',', at), text.size());
    std::string_view item = without_blanks(text.substr(at, end - at));
    auto read = read_host_line(item);
    if (!read || !read->slots)
      return Error(
          ErrorCode::invalid_argument,
          "hosts must be given as name:slots, separated by commas (host1:4,host2:4 or [fd00::1]:4), but one is '" +
              std::string(item) + (item.starts_with('-') ? "', which begins with a dash" : "'"));
    hosts.push_back({read->host, *read->slots});
    at = end + 1;
  }
  HVD_RETURN_IF_ERROR(leave_out_hosts_without_slots(hosts, "'" + std::string(text) + "'"));
  return hosts;
}

Result<std::vector<HostSlots>> parse_host_file(std::string_view text, const std::string& file_name) {
  std::vector<HostSlots> hosts;
  // the byte order mark of UTF-8, which editors on Windows write
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  int number = 0;
  while (!text.empty()) {
    ++number;
    std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end), content = without_blanks(line.substr(0, line.find('#')));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (content.empty()) continue;
    std::size_t blank = std::min(content.find_first_of(" \t"), content.size());
    auto host = read_host(std::string(content.substr(0, blank)));
    auto slots = slots_in(without_blanks(content.substr(blank)));
    if (!slots || !host)
      return Error(ErrorCode::invalid_argument, file_name + ", line " + std::to_string(number) +
                                                    " must be 'host slots=N', not '" +
                                                    std::string(without_blanks(line)) + "'");
    hosts.push_back({*host, *slots});
  }
  if (hosts.empty())
    return Error(ErrorCode::invalid_argument, file_name + " names no host: lines must be 'host slots=N'");
  HVD_RETURN_IF_ERROR(leave_out_hosts_without_slots(hosts, file_name));
  return hosts;
}

OwnNames OwnNames::of_this_machine() {
  OwnNames own{posix::host_name(), {}};
  auto interfaces = posix::interfaces();
  if (!interfaces) return own;
  for (const posix::Interface& interface : *interfaces)
    for (const posix::InterfaceAddress& entry : interface.addresses) own.addresses.push_back(entry.address.host());
  return own;
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

Result<std::vector<HostSlots>> distinct_hosts(const std::vector<HostSlots>& hosts, const OwnNames& own) {
  std::vector<HostSlots> result;
  for (const HostSlots& host : hosts) {
    bool here = is_this_machine(host.host, own);
    auto same = std::find_if(result.begin(), result.end(), [&](const HostSlots& other) {
      return is_same_name(other.host, host.host) || (here && is_this_machine(other.host, own));
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

bool is_this_machine(std::string_view host, const OwnNames& own) {
  return is_same_name(first_label(host), "localhost") || host.starts_with("127.") || host == "::1" ||
         is_same_name(host, own.name) || is_same_name(first_label(host), own.name) ||
         is_same_name(host, first_label(own.name)) ||
         std::find(own.addresses.begin(), own.addresses.end(), host) != own.addresses.end();
}

}  // namespace hvd::launcher
