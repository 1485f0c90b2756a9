#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <thread>

#include "bootstrap/meeting/exchange.hpp"
#include "bootstrap/store/client.hpp"
#include "bootstrap/store/verbs.hpp"
#include "native/posix/processes/fork_guard.hpp"

namespace hvd::bootstrap {
namespace {

using store::Verb;

constexpr std::chrono::milliseconds longest_wait_outside(500);  // longest pause between tries to enter the store

// False if the deadline passes first.
bool wait_for(int descriptor, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{descriptor, events, 0};
    auto left = static_cast<int>(std::min<std::int64_t>(deadline.left().count() + 1, INT_MAX));
    int ready = ::poll(&entry, 1, left);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // the next call on the socket reports the error
    if (deadline.passed()) return false;
  }
}

}  // namespace

StoreClient::StoreClient(StoreChannel channel, Rank rank, int size)
    : channel_(std::move(channel)), rank_(rank), size_(size) {
  posix::withhold_from_children(channel_.descriptor);
}

StoreClient::~StoreClient() {
  if (broken_.empty()) (void)channel_.send(store::message(Verb::leave, 0));
  posix::stop_withholding(channel_.descriptor);
}

Result<std::unique_ptr<StoreClient>> StoreClient::enter(const Connect& connect, ConstBytes greeting,
                                                        const std::string& secret, Rank rank, int size,
                                                        Deadline deadline) {
  std::string fault = "it has no room";
  for (std::chrono::milliseconds pause(10);; pause = std::min(pause * 2, longest_wait_outside)) {
    auto channel = connect();
    if (!channel) return std::move(channel.error());
    if (*channel) {
      std::unique_ptr<StoreClient> client(new StoreClient(std::move(**channel), rank, size));
      Status greeted = client->greet(greeting, secret, deadline);
      if (greeted) return client;
      if (client->broken_.empty() || greeted.error().code != ErrorCode::peer_lost) return std::move(greeted.error());
      fault = greeted.error().message;
    }
    if (deadline.left() <= pause)
      return Error(ErrorCode::timeout, "the store of the job has accepted no connection before the deadline: " + fault);
    std::this_thread::sleep_for(pause);  // no event tells when the store has room
  }
}

Status StoreClient::greet(ConstBytes greeting, const std::string& secret, Deadline deadline) {
  auto reply = ask(static_cast<std::uint8_t>(Verb::hello), greeting, deadline, "joining");
  if (!reply) return std::move(reply.error());
  if (static_cast<Verb>(reply->verb) == Verb::stranger)
    return Error(ErrorCode::mismatch,
                 channel_.store + " does not know the secret of this process: is " + secret + " that of another job?");
  ByteReader in(reply->body);
  job_ = in.get_string();
  if (static_cast<Verb>(reply->verb) != Verb::welcome || !in.ok()) return gone("joining");
  return {};
}

Error StoreClient::late(std::string_view what) const {
  return {ErrorCode::timeout, channel_.store + " did not answer in time: " + std::string(what)};
}

Error StoreClient::gone(std::string_view what) {
  broken_ = channel_.store + " closed the connection: " + std::string(what);
  return {ErrorCode::peer_lost, broken_};
}

Status StoreClient::send(ConstBytes message, Deadline deadline, std::string_view what) {
  for (;;) {
    auto sent = channel_.send(message);
    if (!sent) return std::move(sent.error());
    if (*sent == posix::Delivery::done) return {};
    if (*sent == posix::Delivery::closed) return gone(what);
    if (!wait_for(channel_.descriptor, POLLOUT, deadline)) return late(what);
  }
}

Result<Buffer> StoreClient::receive(Deadline deadline, std::string_view what) {
  Buffer message;
  message.reserve(store::largest_message);
  for (;;) {
    auto got = channel_.receive(message);
    if (!got) return std::move(got.error());
    if (*got == posix::Delivery::done) return message;
    if (*got == posix::Delivery::closed) return gone(what);
    bool unsent = channel_.has_unsent && channel_.has_unsent();
    auto events = static_cast<short>(unsent ? POLLIN | POLLOUT : POLLIN);
    if (!wait_for(channel_.descriptor, events, deadline)) return late(what);
  }
}

Result<StoreClient::Reply> StoreClient::ask(std::uint8_t verb, ConstBytes body, Deadline deadline,
                                            std::string_view what) {
  if (!broken_.empty()) return Error(ErrorCode::peer_lost, broken_);
  std::uint32_t ticket = ++ticket_;
  Buffer request = store::message(static_cast<Verb>(verb), ticket);
  ByteWriter(request).put_raw(body.data(), body.size());
  HVD_RETURN_IF_ERROR(send(request, deadline, what));
  return answer(ticket, deadline, what);
}

Result<StoreClient::Reply> StoreClient::answer(std::uint32_t ticket, Deadline deadline, std::string_view what) {
  for (;;) {
    auto message = receive(deadline, what);
    if (!message) return std::move(message.error());
    ByteReader in(*message);
    Reply reply;
    reply.verb = in.get<std::uint8_t>();
    auto answered = in.get<std::uint32_t>();
    if (!in.ok()) return gone(what);
    if (static_cast<Verb>(reply.verb) == Verb::piece) {
      Buffer& table = pieces_[answered];
      table.insert(table.end(), message->begin() + 5, message->end());
      continue;
    }
    if (static_cast<Verb>(reply.verb) == Verb::news) {
      note_news(*message);
      continue;
    }
    if (answered != ticket) {  // an answer to an earlier request, whose deadline has passed
      pieces_.clear();
      continue;
    }
    reply.body.assign(message->begin() + 5, message->end());
    if (static_cast<Verb>(reply.verb) != Verb::failed) return reply;
    ByteReader failure(reply.body);
    auto code = failure.get<std::uint8_t>();
    std::string text(failure.get_string());
    if (!failure.ok() || code > static_cast<std::uint8_t>(ErrorCode::system)) return gone(what);
    return Error(static_cast<ErrorCode>(code), std::move(text));
  }
}

Status StoreClient::put(std::string_view key, ConstBytes value, Deadline deadline) {
  if (key.empty() || key.size() > store::largest_key || value.size() > store::largest_value)
    return Error(ErrorCode::invalid_argument, channel_.store + " takes keys of 1 to " +
                                                  std::to_string(store::largest_key) + " bytes and values of up to " +
                                                  std::to_string(store::largest_value) + ", found " +
                                                  std::to_string(key.size()) + " and " + std::to_string(value.size()) +
                                                  " (\"" + std::string(key.substr(0, store::largest_key)) + "\")");
  Buffer body;
  ByteWriter out(body);
  out.put_string(key);
  out.put(static_cast<std::uint32_t>(value.size()));
  out.put_raw(value.data(), value.size());
  auto reply = ask(static_cast<std::uint8_t>(Verb::put), body, deadline, "putting " + std::string(key));
  if (!reply) return std::move(reply.error());
  return {};
}

Result<Buffer> StoreClient::get(Rank from, std::string_view key, Deadline deadline) {
  if (from.value < 0 || from.value >= size_ || key.empty() || key.size() > store::largest_key)
    return Error(ErrorCode::invalid_argument, "cannot get \"" + std::string(key.substr(0, store::largest_key)) +
                                                  "\" of rank " + std::to_string(from.value) + " of " +
                                                  std::to_string(size_));
  std::string what = "getting " + std::string(key) + " of rank " + std::to_string(from.value);
  Buffer body;
  ByteWriter out(body);
  out.put(from.value);
  out.put_string(key);
  auto reply = ask(static_cast<std::uint8_t>(Verb::get), body, deadline, what);
  if (!reply) return std::move(reply.error());
  ByteReader in(reply->body);
  ConstBytes value = as_bytes(in.get_string());
  if (static_cast<Verb>(reply->verb) != Verb::value || !in.ok()) return gone(what);
  return Buffer(value.begin(), value.end());
}

Status StoreClient::fence(Deadline deadline) {
  if (!late_fence_.empty()) return Error(ErrorCode::peer_lost, late_fence_);
  auto reply = ask(static_cast<std::uint8_t>(Verb::fence), {}, deadline, "waiting for all ranks");
  if (!reply) {
    // The store counts this rank as arrived at this fence. It would count a second try for the next fence.
    if (reply.error().code == ErrorCode::timeout) {
      name_absent(reply.error(), "");
      late_fence_ = reply.error().message;
    }
    return std::move(reply.error());
  }
  return {};
}

Result<Cards> StoreClient::exchange(std::string_view key, const Card& card, Deadline deadline) {
  auto table = exchange(key, std::vector<BroughtCard>{{rank_, encode(card)}}, deadline);
  if (!table) return std::move(table.error());
  return Cards::decode(std::move(*table), size_);
}

Result<Buffer> StoreClient::exchange(std::string_view key, const std::vector<BroughtCard>& cards, Deadline deadline) {
  constexpr const char* what = "waiting for all ranks";
  for (const auto& [rank, card] : cards) {
    if (key.empty() || key.size() > store::largest_key || card.size() > store::largest_value)
      return Error(ErrorCode::invalid_argument, channel_.store + " takes cards of up to " +
                                                    std::to_string(store::largest_value) + " bytes, found " +
                                                    std::to_string(card.size()));
    if (!broken_.empty()) break;
    Buffer message = store::message(Verb::card, ticket_ + 1);
    ByteWriter out(message);
    out.put_string(key);
    out.put(rank.value);
    out.put_string({reinterpret_cast<const char*>(card.data()), card.size()});
    HVD_RETURN_IF_ERROR(send(message, deadline, what));
  }
  Buffer body;
  ByteWriter(body).put_string(key);
  auto reply = ask(static_cast<std::uint8_t>(Verb::exchange), body, deadline, what);
  if (!reply) {
    if (reply.error().code == ErrorCode::timeout) name_absent(reply.error(), key);
    return std::move(reply.error());
  }
  ByteReader in(reply->body);
  Buffer table = take_pieces(in.get<std::uint32_t>());
  if (static_cast<Verb>(reply->verb) != Verb::all || !in.ok() || table.empty()) return gone(what);
  return table;
}

Buffer StoreClient::take_pieces(std::uint32_t number) {
  auto pieces = pieces_.extract(number);
  pieces_.clear();
  return pieces.empty() ? Buffer() : std::move(pieces.mapped());
}

// Adds to an error the ranks that are late. The store knows them if it still answers within a moment.
void StoreClient::name_absent(Error& error, std::string_view key) {
  constexpr auto answer_time = std::chrono::seconds(1);
  Buffer body;
  ByteWriter(body).put_string(key);
  auto reply = ask(static_cast<std::uint8_t>(Verb::absent), body, Deadline::after(answer_time), "asking who is late");
  if (!reply) return;
  ByteReader in(reply->body);
  ConstBytes numbers = as_bytes(in.get_string());
  std::vector<int> absent;
  for (ByteReader each(numbers); !each.at_end() && each.ok();) absent.push_back(each.get<std::int32_t>());
  if (in.ok() && !absent.empty()) error.message += ". " + who_is_absent(absent, size_) + what_to_ask;
}

Result<Buffer> StoreClient::request(Verb verb, ConstBytes body, Deadline deadline, std::string_view what) {
  auto reply = ask(static_cast<std::uint8_t>(verb), body, deadline, what);
  if (!reply) return std::move(reply.error());
  return std::move(reply->body);
}

Status StoreClient::request_all(Verb verb, std::uint64_t count,
                                const std::function<void(std::uint64_t number, ByteWriter& body)>& write,
                                const std::function<Status(ConstBytes answer)>& take,
                                std::chrono::milliseconds time_for_each, std::string_view what) {
  // With one request at a time, both ends would wait for the other's turn on a busy machine. More than this would let
  // one client keep the store from the others, and fill its memory.
  constexpr std::uint64_t most_at_once = 64;
  Buffer request;
  for (std::uint64_t begun = 0; begun < count;) {
    if (!broken_.empty()) return Error(ErrorCode::peer_lost, broken_);
    const std::uint64_t end = std::min(count, begun + most_at_once);
    std::uint32_t ticket = ticket_;
    for (; begun < end; ++begun) {
      request = store::message(verb, ++ticket_);
      ByteWriter body(request);
      write(begun, body);
      HVD_RETURN_IF_ERROR(send(request, Deadline::after(time_for_each), what));
    }
    while (ticket != ticket_) {
      auto reply = answer(++ticket, Deadline::after(time_for_each), what);
      if (!reply) return std::move(reply.error());
      HVD_RETURN_IF_ERROR(take(reply->body));
    }
  }
  return {};
}

Result<Identity> StoreClient::assign(const Progress& progress, Deadline deadline) {
  constexpr const char* what = "waiting for a place among the ranks";
  news_.clear();
  late_fence_.clear();
  pieces_.clear();
  Buffer body;
  ByteWriter out(body);
  out.put(progress.cause);
  out.put(progress.step);
  out.put(progress.keeps);
  auto reply = ask(static_cast<std::uint8_t>(Verb::assign), body, deadline, what);
  if (!reply) return std::move(reply.error());
  ByteReader in(reply->body);
  Assignment place;
  rank_ = Rank{in.get<std::int32_t>()};
  size_ = in.get<std::int32_t>();
  for (int* number : {&place.local_rank, &place.local_size, &place.cross_rank, &place.cross_size})
    *number = in.get<std::int32_t>();
  place.epoch = in.get<std::uint32_t>();
  place.newcomers = in.get<std::int32_t>();
  if (static_cast<Verb>(reply->verb) != Verb::assigned || !in.ok() || !in.at_end()) return gone(what);
  return Identity{rank_, size_, job_, place};
}

void StoreClient::note_news(ConstBytes message) {
  ByteReader in(message);
  (void)in.get<std::uint8_t>();
  (void)in.get<std::uint32_t>();
  HostNews news;
  news.time = in.get<double>();
  news.change = in.get<std::uint8_t>();
  if (in.ok()) news_.push_back(news);
}

std::vector<HostNews> StoreClient::take_news() {
  Buffer message;
  while (broken_.empty()) {
    auto got = channel_.receive(message);
    if (!got || *got == posix::Delivery::closed) (void)gone("looking for news");
    if (!got || *got != posix::Delivery::done) break;
    if (!message.empty() && static_cast<Verb>(message[0]) == Verb::news) note_news(message);
  }
  return std::exchange(news_, {});
}

void StoreClient::abort(std::string_view reason) noexcept {
  Buffer request = store::message(Verb::abort, 0);
  ByteWriter(request).put_string(reason.substr(0, store::largest_key * 16));
  (void)send(request, Deadline::after(std::chrono::seconds(1)), "aborting");
}

Status StoreClient::leave(Deadline deadline) {
  auto reply = ask(static_cast<std::uint8_t>(Verb::leave), {}, deadline, "leaving");
  if (broken_.empty()) broken_ = "this rank has left " + channel_.store;
  if (!reply) return std::move(reply.error());
  return {};
}

}  // namespace hvd::bootstrap
