#include "link/our_tcp_link.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <string_view>

#include "base/settings/environment.hpp"
#include "bootstrap/meeting/meeting.hpp"
#include "transport/registry.hpp"

namespace hvd::benchmark {

namespace {

constexpr std::size_t message_bytes = 512 << 10;

}  // namespace

OurTcpLink::OurTcpLink(Ranks ranks) : ranks_(std::move(ranks)), bootstrap_(ranks_) {
  std::vector<std::string> warnings;
  Environment environment = Environment::of_this_process();
  config_ = ranks_.value_of(Config::from(environment, warnings));
  bootstrap::Identity identity = ranks_.value_of(bootstrap_.join({}, config_));
  auto listener = ranks_.value_of(connections::NetListener::open(config_));
  Member me = bootstrap::introduce_myself(environment, "");
  me.endpoints = listener.endpoints();
  world_ = ranks_.value_of(bootstrap::meet(bootstrap_, identity, 0, me, Deadline::after(std::chrono::seconds(30))));
  surroundings_.world = &world_;
  surroundings_.config = &config_;
  surroundings_.wake = &wake_;
  surroundings_.offer<connections::NetPeers>(
      ranks_.value_of(connections::NetPeers::start(world_, config_, std::move(listener))));
  surroundings_.ask<connections::NetPeers>()->set_wake(&wake_);
  for (const transport::Maker& maker : transport::registry())
    if (std::string_view(maker.name) == "tcp") transport_ = maker.make(surroundings_);
  if (transport_ == nullptr) ranks_.fail("this build has no transport 'tcp'");
  Group group;
  for (int rank = 0; rank < world_.size(); ++rank) group.ranks.emplace_back(rank);
  group.me = Seat{world_.rank.value};
  NoExchange exchange;
  auto connecting = ranks_.value_of(transport_->connect(group, "world", exchange));
  if (connecting->step() != Progress::done) ranks_.fail("the TCP link was not made at once");
  link_ = connecting->take();
}

OurTcpLink::~OurTcpLink() {
  ranks_.allgather({});
}

void OurTcpLink::exchange(int peer, ConstBytes out, Bytes in) {
  Channel channel{Sequence{++sequence_}, 0, 0};
  pending_.clear();
  while (!out.empty() || channel.chunk == 0) {
    std::size_t length = std::min(out.size(), message_bytes);
    pending_.push_back(link_->recv(Seat{peer}, in.first(length), channel));
    pending_.push_back(link_->send(Seat{peer}, out.first(length), channel));
    out = out.subspan(length);
    in = in.subspan(length);
    ++channel.chunk;
  }
  while (!pending_.empty()) {
    std::erase_if(pending_, [this](transport::Pending pending) {
      Progress progress = link_->poll(pending);
      if (progress == Progress::failed) ranks_.fail(link_->failure().message);
      return progress == Progress::done;
    });
    if (ranks_.is_crowded) ::sched_yield();
  }
}

posix::FileDescriptor OurTcpLink::bare_connection(int peer) {
  for (;;) {
    auto asked = ranks_.value_of(surroundings_.ask<connections::NetPeers>()->connection(Rank{peer}, "bare"));
    if (asked) {
      // the owner closes this descriptor without telling us
      surroundings_.ask<connections::NetPeers>()->disarm(asked->get());
      return std::move(*asked);
    }
    ::sched_yield();
  }
}

}  // namespace hvd::benchmark
