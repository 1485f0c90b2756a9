// Messages over TCP between any ranks of the job. connections::NetPeers makes and authenticates the connections.
#include <string>

#include "base/panic.hpp"
#include "connections/net_peers.hpp"
#include "transport/tcp/link.hpp"
#include "transport/transport.hpp"

namespace hvd::transport {
namespace {

// A link is made without other ranks, because connections are made when they are first used.
class TcpConnecting final : public Connecting {
 public:
  explicit TcpConnecting(std::unique_ptr<Link> link) : link_(std::move(link)) {}
  Progress step() override { return Progress::done; }
  std::unique_ptr<Link> take() override { return std::move(link_); }
  const Error& failure() const override { panic("a link over TCP is made without meeting anybody: it cannot fail"); }

 private:
  std::unique_ptr<Link> link_;
};

class Tcp final : public Transport {
 public:
  explicit Tcp(const Surroundings& surroundings) : surroundings_(surroundings) {}

  const char* name() const override { return "tcp"; }

  bool reaches(const Group& group, DeviceKind kind) const override {
    if (surroundings_.ask<connections::NetPeers>() == nullptr || surroundings_.world == nullptr ||
        kind != DeviceKind::host || !group.has_me())
      return false;
    const World& world = *surroundings_.world;
    for (Rank rank : group.ranks) {
      if (rank.value < 0 || rank.value >= world.size()) return false;
      if (rank != world.rank && world.member(rank).endpoints.empty()) return false;
    }
    return true;
  }

  Result<std::unique_ptr<Connecting>> connect(const Group& group, std::string_view name, Exchange&) override {
    if (!reaches(group, DeviceKind::host)) {
      return Error(ErrorCode::unsupported, "TCP does not reach all ranks of the group '" + std::string(name) +
                                               "': each of them has to have told an address; ask reaches() first");
    }
    auto link = tcp::make_link(surroundings_, group, std::string(name));
    return std::unique_ptr<Connecting>(std::make_unique<TcpConnecting>(std::move(link)));
  }

 private:
  const Surroundings surroundings_;
};

}  // namespace

std::unique_ptr<Transport> make_tcp(const Surroundings& surroundings) {
  return std::make_unique<Tcp>(surroundings);
}

}  // namespace hvd::transport
