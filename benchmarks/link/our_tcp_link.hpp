#pragma once
// Our TCP links without the runtime above them. The caller polls for messages.
#include <memory>

#include "base/bytes.hpp"
#include "connections/net_peers.hpp"
#include "link/exchange_bootstrap.hpp"
#include "native/posix/files/file_descriptor.hpp"
#include "native/posix/memory/wait_word.hpp"
#include "transport/transport.hpp"

namespace hvd::benchmark {

class OurTcpLink {
 public:
  // Collective. HOROVOD_GLOO_IFACE names the interfaces, as everywhere in the project.
  explicit OurTcpLink(Ranks ranks);
  ~OurTcpLink();
  OurTcpLink(const OurTcpLink&) = delete;
  OurTcpLink& operator=(const OurTcpLink&) = delete;

  // Exchanges equal numbers of bytes between two ranks in both directions at once. Collective.
  void exchange(int peer, ConstBytes out, Bytes in);
  // Returns a connection like those of the link, for callers that do without the link. Collective between the two
  // ranks.
  posix::FileDescriptor bare_connection(int peer);

 private:
  const Ranks ranks_;
  Config config_;
  World world_;
  ExchangeBootstrap bootstrap_;
  posix::WaitWord wake_;
  transport::Surroundings surroundings_;
  std::unique_ptr<transport::Transport> transport_;
  std::unique_ptr<transport::Link> link_;
  std::uint64_t sequence_ = 0;
  std::vector<transport::Pending> pending_;
};

}  // namespace hvd::benchmark
