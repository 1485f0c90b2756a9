#pragma once
// What distinguishes this machine, and this namespace on it, from others.
#include <string>

namespace hvd::posix {

// The kernel's name for it (uname); "unknown" if that is empty.
std::string host_name();

// Equal exactly for processes that can share memory in our way: over unix sockets of the abstract namespace, which
// belong to one kernel (its boot id) and one of its network namespaces. Process, user and mount namespaces do not
// matter (containers of one node share memory), nor do host names (pods of one node may have the same).
std::string node_id();

}  // namespace hvd::posix
