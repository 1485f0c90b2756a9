#include "bootstrap/meeting/node_circle.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/checksums/sha256.hpp"
#include "bootstrap/store/verbs.hpp"
#include "native/posix/sockets/unix_socket.hpp"

namespace hvd::bootstrap {
namespace {

constexpr std::chrono::milliseconds longest_nap(20);
constexpr std::chrono::seconds time_to_explain(2);  // time in which the first rank tells the others why it failed

bool is_mine(const posix::FileDescriptor& socket) {
  auto process = posix::process_behind(socket);
  return process && process->uid == ::geteuid();
}

int poll_time(Deadline deadline) {
  return static_cast<int>(std::min<std::int64_t>(deadline.left().count() + 1, 1 << 30));
}

Result<Buffer> read_all(const posix::FileDescriptor& memory) {
  Buffer content;
  std::byte bytes[64 << 10];
  for (off_t at = 0;;) {
    ssize_t got = ::pread(memory.get(), bytes, sizeof bytes, at);
    if (got == 0) return content;
    if (got < 0 && errno != EINTR) return system_error("cannot read what the first rank of the node handed out", errno);
    if (got < 0) continue;
    content.insert(content.end(), bytes, bytes + got);
    at += got;
  }
}

posix::FileDescriptor memory_with(ConstBytes content) {
  posix::FileDescriptor memory(::memfd_create("hvd-cards", MFD_CLOEXEC));
  while (memory && !content.empty()) {
    ssize_t written = ::write(memory.get(), content.data(), content.size());
    if (written < 0 && errno != EINTR) return {};
    if (written > 0) content = content.subspan(static_cast<std::size_t>(written));
  }
  return memory;
}

// Reads the card of a rank that has connected. Returns nullopt if the rank did not send a card.
std::optional<BroughtCard> read_card(const posix::FileDescriptor& socket, Deadline deadline) {
  Buffer message;
  message.reserve(store::largest_message);
  posix::FileDescriptor unwanted;
  for (;;) {
    auto got = posix::receive_message(socket, message, unwanted);
    if (!got || *got == posix::Delivery::closed) return std::nullopt;
    if (*got == posix::Delivery::done) break;
    pollfd entry{socket.get(), POLLIN, 0};
    ::poll(&entry, 1, poll_time(deadline));
    if (deadline.passed()) return std::nullopt;
  }
  ByteReader in(message);
  Rank rank{in.get<std::int32_t>()};
  ConstBytes card = as_bytes(in.get_string());
  if (!in.ok() || !in.at_end()) return std::nullopt;
  return BroughtCard{rank, Buffer(card.begin(), card.end())};
}

}  // namespace

NodeCircle::NodeCircle(std::string name, bool leads, int others, std::chrono::milliseconds patience)
    : name_(std::move(name)), leads_(leads), others_(static_cast<std::size_t>(others)), patience_(patience) {}

std::string NodeCircle::address(std::string_view key, std::string_view purpose) const {
  std::string text = name_ + "\n" + std::string(key) + "\n" + std::string(purpose);
  return "@hvd-" + hexadecimal(sha256(as_bytes(text))).substr(0, 32);
}

Result<Buffer> NodeCircle::table_of_all(BroughtCard mine, std::string_view key, Deadline deadline, const Ask& ask) {
  if (!leads())
    if (auto table = bring(mine, key, deadline)) return std::move(*table);
  std::vector<BroughtCard> cards = gather(key, deadline);
  cards.push_back(std::move(mine));
  auto table = ask(cards);
  hand_out(table);
  return table;
}

std::vector<BroughtCard> NodeCircle::gather(std::string_view key, Deadline deadline) {
  std::vector<BroughtCard> cards;
  guests_.clear();
  if (others_ == 0) return cards;
  auto listening = posix::listen_on_unix_socket(address(key, "come"));
  Deadline until = Deadline::after(std::min(patience_, deadline.left() / 6));
  while (listening && *listening && cards.size() < others_ && !until.passed()) {
    pollfd entry{listening->get(), POLLIN, 0};
    ::poll(&entry, 1, poll_time(until));
    auto guest = posix::accept_from(*listening);
    if (!guest || !*guest || !is_mine(*guest)) continue;
    auto card = read_card(*guest, until);
    if (!card) continue;
    cards.push_back(std::move(*card));
    guests_.push_back(std::move(*guest));
    until = Deadline::after(std::min(patience_, deadline.left() / 6));
  }
  if (cards.size() == others_) return cards;
  // The notice is posted before the door is closed, so a rank that finds the door closed finds the notice.
  if (auto notice = posix::listen_on_unix_socket(address(key, "passed"))) notices_.push_back(std::move(*notice));
  others_ = cards.size();
  return cards;
}

void NodeCircle::hand_out(const Result<Buffer>& table) {
  Buffer message;
  ByteWriter out(message);
  posix::FileDescriptor memory;
  if (table) memory = memory_with(*table);
  out.put(static_cast<std::uint8_t>(memory ? 0 : 1));
  if (!memory) {
    Error none(ErrorCode::system, "the first rank of the node has no memory for what all ranks told each other");
    const Error& error = table ? none : table.error();
    out.put(static_cast<std::uint8_t>(error.code));
    out.put_string(error.message);
  }
  for (const posix::FileDescriptor& guest : guests_)
    (void)posix::send_message(guest, message, memory ? memory.get() : -1);
  guests_.clear();
}

// Returns the connection to the first rank. An empty descriptor means that no table is to be had from it.
Result<posix::FileDescriptor> NodeCircle::find_first(std::string_view key, Deadline deadline) const {
  Deadline until = Deadline::after(std::min(patience_, deadline.left() / 6));
  for (std::chrono::milliseconds nap(1);; nap = std::min(nap * 2, longest_nap)) {
    bool has_passed = bool(posix::connect_to_unix_socket(address(key, "passed")));
    auto found = posix::connect_to_unix_socket(address(key, "come"));
    if (found && *found && is_mine(*found)) return found;
    if (has_passed || until.passed()) return posix::FileDescriptor();
    std::this_thread::sleep_for(nap);  // no event tells when the first rank is there
  }
}

std::optional<Result<Buffer>> NodeCircle::bring(const BroughtCard& card, std::string_view key, Deadline deadline) {
  Buffer message;
  ByteWriter out(message);
  out.put(card.first.value);
  out.put_string(to_string(card.second));
  auto first = find_first(key, deadline);
  leads_ = true;  // unless the first rank answers
  others_ = 0;
  if (!*first || message.size() > store::largest_message) return std::nullopt;
  auto sent = posix::send_message(*first, message);
  if (!sent || *sent != posix::Delivery::done) return std::nullopt;
  Buffer answer;
  answer.reserve(store::largest_message);
  posix::FileDescriptor memory;
  Deadline until = Deadline::after(deadline.left() + time_to_explain);
  for (;;) {
    auto got = posix::receive_message(*first, answer, memory);
    if (!got || *got == posix::Delivery::closed) return std::nullopt;
    if (*got == posix::Delivery::done) break;
    pollfd entry{first->get(), POLLIN, 0};
    ::poll(&entry, 1, poll_time(until));
    if (until.passed())
      return Error(ErrorCode::timeout, "the first rank of this node did not bring the answer of the others in time");
  }
  leads_ = false;
  ByteReader in(answer);
  if (in.get<std::uint8_t>() == 0) return read_all(memory);
  auto code = in.get<std::uint8_t>();
  std::string text(in.get_string());
  if (!in.ok() || code > static_cast<std::uint8_t>(ErrorCode::system)) return std::nullopt;
  return Error(static_cast<ErrorCode>(code), std::move(text));
}

}  // namespace hvd::bootstrap
