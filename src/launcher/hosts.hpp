#pragma once
// Hosts and their slots, and which rank goes where: pure functions.
#include <cstddef>
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

// Where a rank runs, in Horovod's words: cross is the set of hosts that have this local rank.
struct Placement {
  std::string host;
  std::size_t host_index = 0;  // in the list of hosts
  Rank rank;
  int local_rank = 0, local_size = 1;
  int cross_rank = 0, cross_size = 1;
};

// "host1:2,host2:4"
Result<std::vector<HostSlots>> parse_hosts(std::string_view text);
// Lines "host slots=N"; '#' begins a comment. `file_name` is for messages.
Result<std::vector<HostSlots>> parse_host_file(std::string_view text, const std::string& file_name);

// Fills the hosts in order. Fails if they have fewer slots than `ranks`; slots beyond that stay empty.
Result<std::vector<Placement>> place(const std::vector<HostSlots>& hosts, int ranks);

// The names of this machine as one host, the first of them, since its ranks share memory. Fails if another host is
// named twice.
Result<std::vector<HostSlots>> distinct_hosts(const std::vector<HostSlots>& hosts, std::string_view own_name);

// Names of this machine: localhost, loopback addresses, its own name with or without the domain.
bool is_this_machine(std::string_view host, std::string_view own_name);

}  // namespace hvd::launcher
