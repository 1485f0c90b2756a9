#include "bootstrap/store/later_meetings.hpp"

#include "base/text/comma_list.hpp"
#include "native/posix/files/random.hpp"

namespace hvd::bootstrap {

Buffer LaterMeetings::open(const Identity& identity, const Config& config) {
  identity_ = identity;
  secret_ = posix::random_bytes(32);
  TcpStoreServer::Options options;
  options.job = identity.job;
  options.size = identity.size;
  options.secret = secret_;
  options.interfaces = items_of(config.network_interfaces);
  options.first_port = config.port_range.first;
  options.last_port = config.port_range.last;
  auto server = TcpStoreThread::start(std::move(options));
  if (server) {
    server_ = std::move(*server);
    addresses_ = server_->server().addresses();
    port_ = std::to_string(server_->server().port());
  } else {
    why_not_ = server.error().message;
  }
  Buffer invitation;
  ByteWriter out(invitation);
  out.put_string(addresses_);
  out.put_string(port_);
  out.put_string(secret_);
  out.put_string(why_not_);
  return invitation;
}

Status LaterMeetings::invited(const Identity& identity, ConstBytes invitation) {
  identity_ = identity;
  ByteReader in(invitation);
  addresses_ = in.get_string();
  port_ = in.get_string();
  secret_ = in.get_string();
  why_not_ = in.get_string();
  if (in.ok() && in.at_end()) return {};
  return Error(
      ErrorCode::mismatch,
      "rank 0's invitation to later meetings is damaged, or of another version of Horovod: all ranks must load "
      "the same release");
}

Status LaterMeetings::put(std::string_view key, ConstBytes value) {
  if (mine_.try_emplace(std::string(key), value.begin(), value.end()).second) return {};
  return Error(ErrorCode::invalid_argument, "\"" + std::string(key) + "\" was put already; a key is used once");
}

Result<Buffer> LaterMeetings::get(Rank from, std::string_view key) const {
  auto found = values_.find({from, std::string(key)});
  if (found != values_.end()) return found->second;
  return Error(ErrorCode::invalid_argument,
               "rank " + std::to_string(from.value) + " had not put \"" + std::string(key) + "\" before the fence");
}

Status LaterMeetings::fence(Deadline deadline) {
  Card card;
  for (auto& [key, value] : std::exchange(mine_, {})) {
    card.push_back(key);
    card.push_back(to_string(value));
  }
  auto cards = exchange("fence " + std::to_string(++fences_), card, deadline);
  if (!cards) return std::move(cards.error());
  for (int rank = 0; rank < identity_.size; ++rank) {
    const auto& texts = cards->of(Rank{rank}).texts;
    for (std::size_t at = 0; at + 1 < texts.size(); at += 2) {
      ConstBytes value = as_bytes(texts[at + 1]);
      values_[{Rank{rank}, std::string(texts[at])}] = Buffer(value.begin(), value.end());
    }
  }
  return {};
}

Result<Cards> LaterMeetings::exchange(std::string_view key, const Card& card, Deadline deadline) {
  if (!why_not_.empty())
    return Error(ErrorCode::unsupported,
                 "the ranks cannot meet again, since rank 0 has no store for that: " + why_not_);
  auto store = enter_tcp_store(addresses_, port_, secret_, identity_.rank, identity_.size, deadline);
  if (!store) {
    store.error().message = "the ranks meet again at rank 0's own store: " + store.error().message;
    return std::move(store.error());
  }
  auto cards = (*store)->exchange(key, card, deadline);
  (void)(*store)->leave(deadline);  // this rank has all cards now, so it does not matter if rank 0 has ended meanwhile
  return cards;
}

}  // namespace hvd::bootstrap
