#pragma once
// The variables by which users and sites choose how the libraries below an MPI send, and the values that leave them
// nothing but sockets and memory.
#include <string_view>

namespace hvd {

struct NetworkSetting {
  const char* variable;
  std::string_view no_fabrics;  // a comma-separated list of the values that name no fabric
};
inline constexpr NetworkSetting network_settings[] = {
    {"UCX_TLS", "tcp,self,sm,shm,posix,sysv,cma,knem,xpmem,mm"},
    {"FI_PROVIDER", "tcp,sockets,udp,tcp;ofi_rxm,udp;ofi_rxd,net,shm"},
    {"OMPI_MCA_btl", "tcp,self,vader,sm"},
};

// True if the variable's value names no fabric. A value such as "^tcp" names what is left out, so fabrics may be left.
bool leaves_only_sockets(const NetworkSetting& setting, std::string_view value);

}  // namespace hvd
