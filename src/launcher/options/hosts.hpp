#pragma once
// Hosts and their slots, and which rank goes to which host. All are pure functions except OwnNames::of_this_machine().
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"

namespace hvd::launcher {

struct HostSlots {
  std::string host;
  int slots = 0;
  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

// The place where a rank runs, with Horovod's words: cross is the set of hosts that have this local rank.
struct Placement {
  std::string host;
  std::size_t host_index = 0;  // index in the list of hosts
  Rank rank;
  int local_rank = 0, local_size = 1;
  int cross_rank = 0, cross_size = 1;
};

// One line of a list of hosts: "host", "host:2" or "[fd00::2]:2".
struct HostLine {
  std::string host;
  std::optional<int> slots{};
};
// Returns nullopt if the text is no such line.
std::optional<HostLine> read_host_line(std::string_view text);

// Reads a text like "host1:2,[fd00::2]:4".
Result<std::vector<HostSlots>> parse_hosts(std::string_view text);
// Reads lines "host slots=N". '#' begins a comment. `file_name` is used in messages.
Result<std::vector<HostSlots>> parse_host_file(std::string_view text, const std::string& file_name);

// The names of this machine. Localhost and the loopback addresses are its names, too, but are not listed here.
struct OwnNames {
  std::string name;                    // host name, with or without the domain
  std::vector<std::string> addresses;  // addresses of the machine's interfaces: "10.0.0.3", "fd00::3"

  static OwnNames of_this_machine();
};

// Fills the hosts in order. Fails if they have fewer slots than `ranks`. If they have more, the last slots stay empty.
Result<std::vector<Placement>> place(const std::vector<HostSlots>& hosts, int ranks);

// Makes one host of all names of this machine, because its ranks share memory. The host keeps the first name. Fails if
// another host is named twice.
Result<std::vector<HostSlots>> distinct_hosts(const std::vector<HostSlots>& hosts, const OwnNames& own);

bool is_this_machine(std::string_view host, const OwnNames& own);

}  // namespace hvd::launcher
