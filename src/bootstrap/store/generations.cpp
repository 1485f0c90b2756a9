#include "bootstrap/store/generations.hpp"

#include <algorithm>
#include <utility>

namespace hvd::bootstrap {

using store::Verb;

StoreGenerations::StoreGenerations(Options options) : options_(std::move(options)) {
  if (options_.size > 0)
    seats_ = std::make_unique<StoreSeats>(
        StoreSeats::Options{options_.job, options_.size, options_.on_abort, options_.answer});
}

void StoreGenerations::answer(std::uint64_t connection, Buffer message) {
  options_.answer(connection, std::make_shared<store::Message>(store::Message{std::move(message)}));
}

void StoreGenerations::answer_failed(std::uint64_t connection, std::uint32_t ticket, ErrorCode code,
                                     std::string_view text) {
  Buffer message = store::message(Verb::failed, ticket);
  ByteWriter out(message);
  out.put(static_cast<std::uint8_t>(code));
  out.put_string(text);
  answer(connection, std::move(message));
}

bool StoreGenerations::seat(std::uint64_t connection, std::uint32_t ticket, const StoreGuest& guest) {
  return options_.size > 0 ? seats_->seat(connection, ticket, guest) : admit(connection, ticket, guest);
}

bool StoreGenerations::is_seated(std::uint64_t connection) const {
  return options_.size > 0 ? seats_->is_seated(connection) : clients_.contains(connection);
}

bool StoreGenerations::is_empty() const {
  return options_.size > 0 ? seats_->is_empty() : clients_.empty();
}

std::optional<std::uint64_t> StoreGenerations::connection_of(int process) const {
  auto found = std::ranges::find_if(clients_, [&](const auto& each) { return each.second.process == process; });
  return found == clients_.end() ? std::nullopt : std::optional(found->first);
}

bool StoreGenerations::admit(std::uint64_t connection, std::uint32_t ticket, const StoreGuest& guest) {
  std::string refusal;
  ErrorCode code = ErrorCode::invalid_argument;
  const std::string who = "process " + std::to_string(guest.rank) + " of this elastic job";
  if (guest.wire_version != store::wire_version) {
    code = ErrorCode::mismatch;
    refusal = "the store of this job speaks version " + std::to_string(store::wire_version) +
              ", this process version " + std::to_string(guest.wire_version) +
              ": use one Horovod for horovodrun and the program";
  } else if (guest.size != 0 || guest.rank < 0) {
    refusal = "the ranks of this job come and go, but this process says that it is rank " + std::to_string(guest.rank) +
              " of " + std::to_string(guest.size);
  } else if (auto taken = connection_of(guest.rank); taken && clients_.at(*taken).pid != guest.pid) {
    refusal = who + " is process " + std::to_string(clients_.at(*taken).pid) + " already; process " +
              std::to_string(guest.pid) + " has inherited its place: a child of a rank cannot take part by itself";
  } else if (taken) {
    left(*taken, "has connected anew");
  }
  if (!refusal.empty()) {
    answer_failed(connection, ticket, code, refusal);
    return false;
  }
  clients_[connection] = Client{guest.rank, guest.pid, std::nullopt};
  Buffer welcome = store::message(Verb::welcome, ticket);
  ByteWriter(welcome).put_string(options_.job);
  answer(connection, std::move(welcome));
  return true;
}

bool StoreGenerations::handle(std::uint64_t connection, ConstBytes message) {
  if (options_.size > 0) return seats_->handle(connection, message);
  ByteReader in(message);
  auto verb = static_cast<Verb>(in.get<std::uint8_t>());
  auto ticket = in.get<std::uint32_t>();
  if (!in.ok()) return false;
  if (verb == Verb::assign) return ask(connection, ticket, in);
  if (seats_ != nullptr && seats_->is_seated(connection)) return seats_->handle(connection, message);
  if (verb == Verb::leave) {
    left(connection, "");
    return true;
  }
  if (verb == Verb::card) return true;  // the request that follows is answered
  answer_failed(connection, ticket, ErrorCode::peer_lost,
                "this process has no place among the ranks that the job has now");
  return true;
}

bool StoreGenerations::ask(std::uint64_t connection, std::uint32_t ticket, ByteReader& in) {
  auto found = clients_.find(connection);
  if (found == clients_.end()) return false;
  AskForPlace asked;
  asked.process = found->second.process;
  asked.cause = in.get<std::uint8_t>();
  asked.step = in.get<std::int64_t>();
  asked.keeps = in.get<bool>();
  if (!in.ok() || !in.at_end() || asked.cause > 2) return false;
  found->second.asks = ticket;
  // For the others of its generation this is the end of the process: if they still meet, they have to meet anew.
  if (seats_ != nullptr) seats_->left(connection, "has begun again");
  options_.on_ask(asked);
  return true;
}

void StoreGenerations::left(std::uint64_t connection, std::string_view why) {
  if (options_.size == 0) clients_.erase(connection);
  if (seats_ != nullptr) seats_->left(connection, why);
}

void StoreGenerations::lose(Rank rank, std::string_view how) {
  if (seats_ != nullptr) seats_->lose(rank, how);
}

void StoreGenerations::end(int process, std::string_view how) {
  if (auto found = ranks_.find(process); found != ranks_.end()) lose(found->second, how);
}

void StoreGenerations::assign(const AssignedPlace& place) {
  if (seats_ == nullptr || epoch_ != place.epoch) {
    former_ = std::exchange(seats_, std::make_unique<StoreSeats>(StoreSeats::Options{
                                        options_.job, place.size, options_.on_abort, options_.answer}));
    epoch_ = place.epoch;
    ranks_.clear();
  }
  ranks_[place.process] = Rank{place.rank};
  auto connection = connection_of(place.process);
  if (!connection || !clients_.at(*connection).asks) return seats_->lose(Rank{place.rank}, "ended");
  Client& client = clients_.at(*connection);
  seats_->take(*connection, Rank{place.rank}, client.pid);
  Buffer message = store::message(Verb::assigned, *std::exchange(client.asks, std::nullopt));
  ByteWriter out(message);
  for (std::int32_t number :
       {place.rank, place.size, place.local_rank, place.local_size, place.cross_rank, place.cross_size})
    out.put(number);
  out.put(place.epoch);
  out.put(place.newcomers);
  answer(*connection, std::move(message));
}

void StoreGenerations::refuse(int process, std::string_view why) {
  auto connection = connection_of(process);
  if (!connection || !clients_.at(*connection).asks) return;
  answer_failed(*connection, *std::exchange(clients_.at(*connection).asks, std::nullopt), ErrorCode::shut_down, why);
}

void StoreGenerations::send_news(int process, double time, std::uint8_t change) {
  auto connection = connection_of(process);
  if (!connection) return;
  Buffer message = store::message(Verb::news, 0);
  ByteWriter out(message);
  out.put(time);
  out.put(change);
  answer(*connection, std::move(message));
}

}  // namespace hvd::bootstrap
