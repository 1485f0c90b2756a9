#pragma once
// The forms in which schedulers write hosts, and numbers for hosts. Errors quote the text that could not be read. The
// caller adds where the text came from.
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "schedulers/scheduler.hpp"

namespace hvd::schedulers {

inline constexpr std::size_t most_hosts = 1 << 16;
inline constexpr int most_slots = 1 << 20;  // limit for the slots of a host; a larger number is taken for an error

// "rack[01-03,7]-x[1-2],login" becomes rack01-x1 rack01-x2 rack02-x1 … login. Slurm and Flux write this form.
Result<std::vector<std::string>> expand_hosts(std::string_view text);
// Reads Slurm's numbers by node: "72(x2),36" becomes 72 72 36.
Result<std::vector<int>> numbers_per_node(std::string_view text);
// "0-3,7" becomes 0 1 2 3 7. Flux and the kernel write this form.
Result<std::vector<int>> numbers_in(std::string_view text);
// Reads one name per line and slot. Returns every host once, with its slots, in the order of the hosts' first lines.
Result<std::vector<Host>> hosts_by_lines(std::string_view text);

// True if ssh and launchers may be given this text as the name of a host.
bool is_host_name(std::string_view text);
// True if the two names, as schedulers write them, are one host. One of them may lack the domain.
bool is_same_host(std::string_view a, std::string_view b);
// Puts the source of the text before an error: "LSB_MCPU_HOSTS: 'n1' has no number of slots".
Error in(const std::string& source, Error error);

}  // namespace hvd::schedulers
