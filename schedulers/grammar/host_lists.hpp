#pragma once
// The ways in which schedulers write hosts, and numbers for them. Errors quote what could not be read; the caller says
// where it stood.
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "schedulers/scheduler.hpp"

namespace hvd::schedulers {

inline constexpr std::size_t most_hosts = 1 << 16;
inline constexpr int most_slots = 1 << 20;  // of a host; what is beyond that is a lie

// "rack[01-03,7]-x[1-2],login": rack01-x1 rack01-x2 rack02-x1 … login. Slurm and Flux write it.
Result<std::vector<std::string>> expand_hosts(std::string_view text);
// Slurm's numbers by node: "72(x2),36" is 72 72 36.
Result<std::vector<int>> numbers_per_node(std::string_view text);
// "0-3,7": 0 1 2 3 7. Flux writes it, and the kernel.
Result<std::vector<int>> numbers_in(std::string_view text);
// One name per line, and per slot: every host once, with its slots, in the order of their first lines.
Result<std::vector<Host>> hosts_by_lines(std::string_view text);

// What may be handed to ssh and launchers as the name of a host.
bool is_host_name(std::string_view text);
// The host's name as schedulers' lists write it, with or without the domain.
bool is_same_host(std::string_view a, std::string_view b);
// The error with what was read before it: "LSB_MCPU_HOSTS: 'n1' has no number of slots".
Error in(const std::string& source, Error error);

}  // namespace hvd::schedulers
