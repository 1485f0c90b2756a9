#pragma once
// The variables by which users and sites choose how the libraries below an MPI send, and the values that leave them
// nothing but sockets and memory.
#include <string_view>

namespace hvd {

struct NetworkSetting {
  const char* variable;
  std::string_view plain;  // a comma-separated list of what is no fabric
};
inline constexpr NetworkSetting network_settings[] = {
    {"UCX_TLS", "tcp,self,sm,shm,posix,sysv,cma,knem,xpmem,mm"},
    {"FI_PROVIDER", "tcp,sockets,udp,tcp;ofi_rxm,udp;ofi_rxd,net,shm"},
    {"OMPI_MCA_btl", "tcp,self,vader,sm"},
};

// True if the value of the variable names only what is no fabric. "^tcp" names what is left out.
bool leaves_only_sockets(const NetworkSetting& setting, std::string_view value);

}  // namespace hvd
