#include "bootstrap/pmi/connection.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "bootstrap/launch/launch.hpp"
#include "native/posix/processes/fork_guard.hpp"
#include "native/posix/processes/thread.hpp"

namespace hvd::bootstrap::pmi {
namespace {

constexpr std::size_t longest_line = 64 << 10;  // limit for a line from a server; no server sends such long lines
constexpr std::size_t longest_request = 1000;   // servers have buffers of 1024 bytes
constexpr auto leave_time = std::chrono::seconds(2);

// False if the deadline passes first.
bool wait_for(int descriptor, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{descriptor, events, 0};
    auto left = static_cast<int>(std::min<std::int64_t>(deadline.left().count() + 1, INT_MAX));
    int ready = ::poll(&entry, 1, left);
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;
    if (deadline.passed()) return false;
  }
}

// Tries to lock in a loop, because GCC 12's thread sanitizer does not know locks with a deadline. More than one try is
// hardly ever needed.
std::unique_lock<std::mutex> lock_within(std::mutex& mutex, std::chrono::milliseconds span) {
  std::unique_lock lock(mutex, std::try_to_lock);
  for (auto end = Deadline::after(span); !lock.owns_lock() && !end.passed(); (void)lock.try_lock())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return lock;
}

int number(std::string_view text, int otherwise) {
  Environment one;
  one.set("n", std::string(text));
  return one.number("n").value_or(otherwise);
}

}  // namespace

std::string_view value_in(std::string_view line, std::string_view key) {
  for (std::size_t at = 0; at < line.size();) {
    bool is_value = line.substr(at).starts_with("value=");
    std::size_t end = is_value ? line.size() : std::min(line.find(' ', at), line.size());
    std::string_view word = line.substr(at, end - at);
    if (word.size() > key.size() && word.starts_with(key) && word[key.size()] == '=')
      return word.substr(key.size() + 1);
    at = end + 1;
  }
  return {};
}

Result<std::unique_ptr<Connection>> Connection::open(const Environment& environment, bool mpi_was_first,
                                                     Deadline deadline) {
  std::unique_ptr<Connection> connection(new Connection);
  connection->process_ = ::getpid();
  connection->rank_ = environment.number("PMI_RANK").value_or(-1);
  connection->size_ = environment.number("PMI_SIZE").value_or(0);
  connection->library_finalizes_ = mpi_was_first;
  auto descriptor = environment.number("PMI_FD");
  if (descriptor) {
    HVD_RETURN_IF_ERROR(connection->take_descriptor(*descriptor));
  } else {
    if (mpi_was_first)
      return Error(ErrorCode::unsupported, "PMI: the MPI library of this process has the only connection to PMI_PORT");
    HVD_RETURN_IF_ERROR(
        connection->dial(environment.get("PMI_PORT").value_or(""), environment.get("PMI_ID").value_or(""), deadline));
  }
  HVD_RETURN_IF_ERROR(connection->greet(deadline));
  if (connection->size_ < 1 || connection->rank_ < 0 || connection->rank_ >= connection->size_)
    return Error(ErrorCode::invalid_argument,
                 "PMI_RANK=" + environment.get("PMI_RANK").value_or("") +
                     ", PMI_SIZE=" + environment.get("PMI_SIZE").value_or("") +
                     ": expected a rank from 0 to the size less 1; start the ranks with mpiexec, srun or horovodrun");
  if (descriptor && !mpi_was_first) HVD_RETURN_IF_ERROR(connection->open_doorway(*descriptor));
  return connection;
}

Status Connection::take_descriptor(int descriptor) {
  if (!is_socket_of_this_process(descriptor))
    return Error(ErrorCode::unsupported, "PMI_FD=" + std::to_string(descriptor) +
                                             " is no socket of this process: it was closed on the way from the "
                                             "launcher, or inherited from a job that is over");
  // This is our own copy of the descriptor, because an MPI library may close the original.
  socket_ = posix::FileDescriptor(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!socket_) return system_error("PMI: duplicating the descriptor PMI_FD", errno);
  posix::withhold_from_children(socket_.get());
  return {};
}

Status Connection::dial(const std::string& address, const std::string& id, Deadline deadline) {
  std::size_t colon = address.rfind(':');
  std::string what = "PMI: connecting to PMI_PORT=" + address;
  if (colon == std::string::npos) return Error(ErrorCode::invalid_argument, what + ": expected host:port");
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (int failure = ::getaddrinfo(address.substr(0, colon).c_str(), address.substr(colon + 1).c_str(), &hints, &found))
    return Error(ErrorCode::unsupported, what + ": " + ::gai_strerror(failure));
  int reason = EADDRNOTAVAIL;
  for (addrinfo* each = found; each != nullptr && !socket_; each = each->ai_next) {
    posix::FileDescriptor made(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!made) continue;
    reason = ::connect(made.get(), each->ai_addr, each->ai_addrlen) == 0 ? 0 : errno;
    if (reason == EINPROGRESS) {
      socklen_t length = sizeof reason;
      reason = ETIMEDOUT;
      if (wait_for(made.get(), POLLOUT, deadline)) ::getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &reason, &length);
    }
    if (reason == 0) socket_ = std::move(made);
  }
  ::freeaddrinfo(found);
  if (!socket_) {
    Error error = system_error(what, reason);
    error.code = ErrorCode::unsupported;
    return error;
  }
  posix::withhold_from_children(socket_.get());
  auto answer = ask("cmd=initack pmiid=" + id, "initack", deadline);
  if (!answer) return std::move(answer.error());
  // The server sends three lines without being asked. They set size, rank and debug.
  for (int line = 0; line < 3; ++line) {
    auto set = read_line(deadline);
    if (!set) return std::move(set.error());
    size_ = number(value_in(*set, "size"), size_);
    rank_ = number(value_in(*set, "rank"), rank_);
  }
  return {};
}

Status Connection::greet(Deadline deadline) {
  if (!library_finalizes_) {
    auto greeting = ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", deadline);
    if (!greeting) return std::move(greeting.error());
    if (value_in(*greeting, "rc") != "0")
      return Error(ErrorCode::unsupported, "PMI: the server does not speak PMI-1: " + *greeting);
  }
  auto maxes = ask("cmd=get_maxes", "maxes", deadline);
  if (!maxes) return std::move(maxes.error());
  auto space = ask("cmd=get_my_kvsname", "my_kvsname", deadline);
  if (!space) return std::move(space.error());
  key_value_space_ = value_in(*space, "kvsname");
  constexpr std::size_t around_value = 100;  // a put request has these words, and its key has up to 64 bytes
  std::size_t room = longest_request - std::min(longest_request, around_value + key_value_space_.size());
  longest_value_ = std::min(room, static_cast<std::size_t>(std::max(number(value_in(*maxes, "vallen_max"), 0) - 1, 0)));
  if (key_value_space_.empty() || longest_value_ < 32)
    return Error(ErrorCode::unsupported, "PMI: the server cannot store values: " + *maxes + ", " + *space);
  return {};
}

Error Connection::gone() {
  broken_ = "the launcher's PMI server closed the connection: it ended, or ends the job because a rank did";
  return {ErrorCode::peer_lost, broken_};
}

Status Connection::send_line(const std::string& line, Deadline deadline) {
  std::string_view left = line;
  while (!left.empty()) {
    ssize_t sent = ::send(socket_.get(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) left.remove_prefix(static_cast<std::size_t>(sent));
    else if (errno != EAGAIN && errno != EINTR) return gone();
    else if (!wait_for(socket_.get(), POLLOUT, deadline))
      return Error(ErrorCode::timeout, "the launcher's PMI server does not read");
  }
  return {};
}

Result<std::string> Connection::read_line(Deadline deadline) {
  for (;;) {
    if (std::size_t end = unread_.find('\n'); end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    if (unread_.size() > longest_line) return gone();
    char bytes[4096];
    ssize_t got = ::recv(socket_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got > 0) unread_.append(bytes, static_cast<std::size_t>(got));
    else if (got == 0 || (errno != EAGAIN && errno != EINTR)) return gone();
    else if (!wait_for(socket_.get(), POLLIN, deadline))
      return Error(ErrorCode::timeout, "the launcher's PMI server did not answer in time");
  }
}

Result<std::string> Connection::ask(const std::string& request, std::string_view answer, Deadline deadline) {
  std::lock_guard lock(mutex_);
  return ask_alone(request, answer, deadline);
}

Result<std::string> Connection::ask_alone(const std::string& request, std::string_view answer, Deadline deadline) {
  if (!broken_.empty()) return Error(ErrorCode::peer_lost, broken_);
  auto exchange = [&]() -> Result<std::string> {
    HVD_RETURN_IF_ERROR(send_line(request + "\n", deadline));
    return read_line(deadline);
  };
  auto line = exchange();
  if (!line) {
    // Nothing may be asked any more: the late answer would be taken for the answer to the next request.
    if (broken_.empty()) broken_ = line.error().message;
    return line;
  }
  if (!answer.empty() && value_in(*line, "cmd") != answer) {
    broken_ = "PMI: the answer to \"" + request.substr(0, 80) + "\" is \"" + line->substr(0, 80) + "\", expected " +
              std::string(answer);
    return Error(ErrorCode::unsupported, broken_);
  }
  return line;
}

Status Connection::put(const std::string& key, const std::string& value, Deadline deadline) {
  auto answer = ask("cmd=put kvsname=" + key_value_space_ + " key=" + key + " value=" + value, "put_result", deadline);
  if (!answer) return std::move(answer.error());
  if (value_in(*answer, "rc") != "0") return Error(ErrorCode::invalid_argument, "PMI: putting " + key + ": " + *answer);
  return {};
}

Result<std::string> Connection::get(const std::string& key, Deadline deadline) {
  auto answer = ask("cmd=get kvsname=" + key_value_space_ + " key=" + key, "get_result", deadline);
  if (!answer) return answer;
  if (value_in(*answer, "rc") != "0")
    return Error(ErrorCode::invalid_argument, "PMI: nobody has put " + key + ": " + *answer);
  return std::string(value_in(*answer, "value"));
}

Status Connection::barrier(Deadline deadline) {
  auto answer = ask("cmd=barrier_in", "barrier_out", deadline);
  if (answer) {
    std::string_view outcome = value_in(*answer, "rc");
    if (outcome.empty() || outcome == "0") return {};
    return Error(ErrorCode::peer_lost, "PMI: the barrier failed, probably because a rank ended: " + *answer);
  }
  if (answer.error().code == ErrorCode::timeout)
    answer.error().message = "PMI: not all " + std::to_string(size_) + " ranks arrived at the barrier in time";
  return std::move(answer.error());
}

void Connection::abort() noexcept {
  // The abort is sent even while another thread waits in a barrier. The barrier's answer no longer matters then.
  auto lock = lock_within(mutex_, leave_time);
  (void)send_line("cmd=abort exitcode=1\n", Deadline::after(leave_time));
}

void Connection::finalize() noexcept {
  if (::getpid() != process_ || library_finalizes_ || finalized_) return;
  finalized_ = true;
  // If a thread waits in a barrier while the process exits, the process cannot leave in order. It does not wait for the
  // barrier.
  auto lock = lock_within(mutex_, leave_time);
  if (!lock.owns_lock()) return;
  (void)ask_alone("cmd=finalize", "finalize_ack", Deadline::after(leave_time));
  broken_ = "PMI: this process has left the job";
}

Connection::~Connection() {
  finalize();
  if (inner_door_) ::shutdown(inner_door_.get(), SHUT_RDWR);
  if (doorkeeper_.joinable()) doorkeeper_.join();
  if (inner_door_) posix::stop_withholding(inner_door_.get());
  if (socket_) posix::stop_withholding(socket_.get());
}

Status Connection::open_doorway(int descriptor) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return system_error("PMI: socketpair", errno);
  inner_door_ = posix::FileDescriptor(ends[0]);
  posix::FileDescriptor outer(ends[1]);
  // The new descriptor outlives an exec, as the replaced one does: the program may be a shell whose child is the rank.
  if (::dup2(outer.get(), descriptor) < 0) return system_error("PMI: replacing the descriptor PMI_FD", errno);
  posix::withhold_from_children(inner_door_.get());
  auto thread = posix::start_thread("hvd-pmi", [this] { serve_doorway(); });
  if (!thread) return std::move(thread.error());
  doorkeeper_ = std::move(*thread);
  return {};
}

// Serves the MPI library until the library closes its end. A library may never come.
void Connection::serve_doorway() {
  std::string unread;
  std::string request;
  char bytes[4096];
  for (;;) {
    ssize_t got = ::recv(inner_door_.get(), bytes, sizeof bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    unread.append(bytes, static_cast<std::size_t>(got));
    for (std::size_t end = unread.find('\n'); end != std::string::npos; end = unread.find('\n')) {
      request += unread.substr(0, end);
      unread.erase(0, end + 1);
      // A spawn request has many lines. Every other request has one line.
      if (request.starts_with("mcmd=") && !request.ends_with("endcmd")) {
        request += '\n';
        continue;
      }
      std::string answer = answer_for_library(request);
      request.clear();
      if (answer.empty()) continue;
      answer += '\n';
      if (::send(inner_door_.get(), answer.data(), answer.size(), MSG_NOSIGNAL) < 0) return;
    }
  }
}

std::string Connection::answer_for_library(const std::string& request) {
  std::string_view command = value_in(request, "cmd");
  if (command == "init") return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
  if (command == "finalize") return "cmd=finalize_ack rc=0";
  if (command == "abort") {
    std::lock_guard lock(mutex_);
    (void)send_line(request + "\n", Deadline::after(leave_time));
    return "";
  }
  auto answer = ask(request, "", Deadline::never());
  return answer ? *answer : "cmd=" + std::string(command) + "_result rc=-1 msg=server_gone";
}

}  // namespace hvd::bootstrap::pmi
