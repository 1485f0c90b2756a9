#pragma once
// Distinguishes this machine, and this namespace on it, from others.
#include <string>

namespace hvd::posix {

// Returns the kernel's name of this machine (uname); "unknown" if that is empty.
std::string host_name();

// Returns a text that is equal exactly for processes that can share memory as we do it: over unix sockets of the
// abstract namespace, which belong to one kernel (its boot id) and one of its network namespaces. Process, user and
// mount namespaces do not matter, because containers of one node can share memory. Host names do not matter either,
// because pods of one node may have equal names.
std::string node_id();

}  // namespace hvd::posix
