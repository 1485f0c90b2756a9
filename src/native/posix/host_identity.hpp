#pragma once
// What tells this machine, and this corner of it, from others.
#include <string>

namespace hvd::posix {

// As the kernel knows it (uname); "unknown" if it is empty.
std::string host_name();

// Equal exactly for processes that can map each other's memory the way we do it: through unix sockets of the abstract
// namespace, which belong to one kernel (its boot id) and one network namespace of it. Process, user and mount
// namespaces do not matter for that (containers of one node share memory), nor do equal host names (pods on one node do
// not).
std::string node_id();

}  // namespace hvd::posix
