#include "connections/unix/peer_handshake.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "native/posix/processes/process_end.hpp"
#include "native/posix/sockets/unix_socket.hpp"

namespace hvd::connections {
namespace {

constexpr std::uint64_t magic = 0x31737265'65702d68;  // changes with the format of the messages between peers
constexpr std::size_t longest_greeting = 4096;
// Anybody on the node can connect, so there is a limit for the lines in this job's log, and for the connections that
// are looked at before anything else is.
constexpr int most_warnings = 3, most_accepted_at_once = 64;
// The time between two tries if the listener's queue is full.
constexpr int retry_ms = 2;

class Handshake {
 public:
  Handshake(const World& world, const Group& node, posix::FileDescriptor listener)
      : world_(world),
        node_(node),
        listener_(std::move(listener)),
        connections_(static_cast<std::size_t>(node.size())),
        is_greeted_(static_cast<std::size_t>(node.size()), false) {
    ByteWriter writer(greeting_);
    writer.put(magic);
    writer.put(world.epoch);
    writer.put(world.rank.value);
    writer.put_string(std::string_view(world.job).substr(0, longest_greeting / 2));
    is_greeted_[static_cast<std::size_t>(node.me.value)] = true;
  }

  ~Handshake() {
    if (dropped_ > most_warnings)
      log::warning("dropped " + std::to_string(dropped_ - most_warnings) +
                   " more connections that are not of this job");
  }
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;

  Result<std::vector<posix::FileDescriptor>> run(Deadline deadline) {
    for (;;) {
      HVD_RETURN_IF_ERROR(connect_to_lower_seats());
      HVD_RETURN_IF_ERROR(accept_strangers());
      receive_from_strangers();
      HVD_RETURN_IF_ERROR(receive_from_lower_seats());
      if (std::all_of(is_greeted_.begin(), is_greeted_.end(), [](bool greeted) { return greeted; })) break;
      if (ended_ && !is_greeted_[*ended_]) return ended_before_it_came(*ended_);
      ended_.reset();
      if (deadline.passed()) return late();
      wait(deadline);
    }
    return std::move(connections_);
  }

 private:
  Rank rank_at(std::size_t seat) const { return node_.ranks[seat]; }

  Status connect_to_lower_seats() {
    has_to_retry_ = false;
    for (std::size_t seat = 0; seat < static_cast<std::size_t>(node_.me.value); ++seat) {
      if (connections_[seat]) continue;
      auto socket = posix::connect_to_unix_socket(world_.member(rank_at(seat)).address);
      if (socket && !*socket) {
        has_to_retry_ = true;
        continue;
      }
      if (!socket) {
        return Error(ErrorCode::peer_lost,
                     describe(world_, rank_at(seat)) + " does not answer: " + socket.error().message);
      }
      auto process = posix::process_behind(*socket);
      if (!process) return std::move(process.error());
      if (process->uid != ::geteuid()) {
        return Error(ErrorCode::system, "the socket of " + describe(world_, rank_at(seat)) + " belongs to user " +
                                            std::to_string(process->uid) + ", expected " + std::to_string(::geteuid()));
      }
      auto sent = posix::send_message(*socket, greeting_);
      if (!sent) return std::move(sent.error());
      connections_[seat] = std::move(*socket);
    }
    return {};
  }

  void report_dropped(const char* what) {
    if (++dropped_ <= most_warnings)
      log::warning(std::string("dropped a connection ") + what +
                   (dropped_ == most_warnings ? "; others are counted" : ""));
  }

  Status accept_strangers() {
    for (int round = 0; round < most_accepted_at_once; ++round) {
      auto socket = posix::accept_from(listener_);
      if (!socket) return std::move(socket.error());
      if (!*socket) return {};
      auto process = posix::process_behind(*socket);
      if (process && process->uid == ::geteuid()) strangers_.push_back(std::move(*socket));
      else report_dropped("of another user's process");
    }
    return {};
  }

  // Returns the seat that a greeting names; -1 if the greeting names no seat of this node.
  int seat_in(const Buffer& greeting) const {
    ByteReader reader(greeting);
    bool is_ours = reader.get<std::uint64_t>() == magic && reader.get<std::uint32_t>() == world_.epoch;
    Rank rank{reader.get<std::int32_t>()};
    std::string_view job = reader.get_string();
    if (!is_ours || !reader.ok() || job != std::string_view(world_.job).substr(0, longest_greeting / 2)) return -1;
    return node_.seat_of(rank).value;
  }

  // Returns the seat from which a greeting has come on the socket. Returns -1 for a wrong greeting or the end, and
  // nothing if nothing has come.
  std::optional<int> read_seat(const posix::FileDescriptor& socket) const {
    Buffer greeting;
    greeting.reserve(longest_greeting);
    posix::FileDescriptor unwanted;
    auto received = posix::receive_message(socket, greeting, unwanted);
    if (received && *received == posix::Delivery::would_block) return std::nullopt;
    return received && *received == posix::Delivery::done ? seat_in(greeting) : -1;
  }

  void receive_from_strangers() {
    std::erase_if(strangers_, [this](posix::FileDescriptor& socket) {
      auto seat = read_seat(socket);
      if (!seat) return false;
      auto index = static_cast<std::size_t>(*seat);
      if (*seat <= node_.me.value || is_greeted_[index]) {
        report_dropped("that did not know this job");
        return true;
      }
      auto sent = posix::send_message(socket, greeting_);
      if (!sent || *sent != posix::Delivery::done) return true;
      connections_[index] = std::move(socket);
      is_greeted_[index] = true;
      return true;
    });
  }

  Status receive_from_lower_seats() {
    for (std::size_t seat = 0; seat < static_cast<std::size_t>(node_.me.value); ++seat) {
      if (is_greeted_[seat] || !connections_[seat]) continue;
      auto found = read_seat(connections_[seat]);
      if (!found) continue;
      if (*found != static_cast<int>(seat)) {
        return Error(ErrorCode::peer_lost, describe(world_, rank_at(seat)) +
                                               " closed the connection or belongs to another job; see its own output");
      }
      is_greeted_[seat] = true;
    }
    return {};
  }

  // Lower seats are noticed when their sockets end. Higher seats connect to us, so only their processes can be watched
  // until they have. `ended_` is checked after one more look at what came: a rank may greet and end at once.
  void wait(Deadline deadline) {
    watch_higher_seats();
    if (ended_) return;
    std::vector<pollfd> watched{{listener_.get(), POLLIN, 0}};
    for (const auto& socket : strangers_) watched.push_back({socket.get(), POLLIN, 0});
    for (std::size_t seat = 0; seat < static_cast<std::size_t>(node_.me.value); ++seat) {
      if (!is_greeted_[seat] && connections_[seat]) watched.push_back({connections_[seat].get(), POLLIN, 0});
    }
    const std::size_t first_process = watched.size();
    for (const auto& [seat, process] : processes_) watched.push_back({process.get(), POLLIN, 0});
    auto left = std::min<std::int64_t>(deadline.left().count() + 1, has_to_retry_ ? retry_ms : 60'000);
    ::poll(watched.data(), watched.size(), static_cast<int>(left));
    for (std::size_t i = 0; i < processes_.size() && !ended_; ++i)
      if (watched[first_process + i].revents != 0) ended_ = processes_[i].first;
  }

  // Watches the processes of the higher seats that have not come. Where that is not possible, the deadline decides.
  void watch_higher_seats() {
    std::erase_if(processes_, [this](const auto& each) { return is_greeted_[each.first]; });
    if (std::exchange(is_watching_, true) || world_.me().process_space.empty()) return;
    for (std::size_t seat = 0; seat < is_greeted_.size(); ++seat) {
      if (is_greeted_[seat] || static_cast<int>(seat) < node_.me.value) continue;
      if (!world_.can_see_process_of(rank_at(seat))) continue;
      auto process = posix::handle_of_process(world_.member(rank_at(seat)).pid);
      if (process) processes_.emplace_back(seat, std::move(process));
      else if (errno == ESRCH) ended_ = seat;
    }
  }

  Error ended_before_it_came(std::size_t seat) const {
    return {ErrorCode::peer_lost, describe(world_, rank_at(seat)) +
                                      " ended before it was connected with the other ranks of its node. Look at that "
                                      "rank's own output for the cause"};
  }

  Error late() const {
    std::string missing;
    for (std::size_t seat = 0; seat < is_greeted_.size(); ++seat) {
      if (!is_greeted_[seat]) missing += (missing.empty() ? "" : ", ") + describe(world_, rank_at(seat));
    }
    return Error(ErrorCode::timeout, "these ranks of this node did not appear in time: " + missing +
                                         "; see whether they still run, or raise HOROVOD_START_TIMEOUT");
  }

  const World& world_;
  const Group& node_;
  posix::FileDescriptor listener_;
  Buffer greeting_;
  std::vector<posix::FileDescriptor> connections_;  // one connection for each seat
  std::vector<bool> is_greeted_;                    // for each seat: true if its greeting has come
  std::vector<posix::FileDescriptor> strangers_;    // accepted connections whose greeting has not come yet
  std::vector<std::pair<std::size_t, posix::FileDescriptor>> processes_;  // higher seats that have not come
  bool is_watching_ = false;
  std::optional<std::size_t> ended_;  // a seat whose process has ended
  bool has_to_retry_ = false;
  int dropped_ = 0;
};

}  // namespace

Result<std::vector<posix::FileDescriptor>> shake_hands(const World& world, const Group& node,
                                                       posix::FileDescriptor listener, Deadline deadline) {
  return Handshake(world, node, std::move(listener)).run(deadline);
}

}  // namespace hvd::connections
