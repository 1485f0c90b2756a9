// The protocol by which two nodes measure their link in a round. The node with the higher number connects and asks, the
// other one answers.
//
//  1. The asking node sends a greeting: the job's secret and its own number. If the other node is not in this round
//     yet, it keeps the connection until then.
//  2. "P": the answer is the time of the answering node's clock. The fastest of many such requests gives the latency
//     and the difference of the clocks.
//  3. "D" and a number of bytes, followed by these bytes. The answer is one byte, sent when all bytes have arrived.
//  4. "U" and a number of bytes. The answer has this number of bytes.
//  5. "E" and the results, so that both nodes know them.
#include "launcher/preflight/link_measurement.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <sstream>

#include "native/posix/sockets/tcp_socket.hpp"

namespace hvd::launcher::preflight {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t secret_bytes = 32;
constexpr int pings = 200;
constexpr std::size_t small_load = 1 << 20, large_load = 8 << 20;
constexpr double fast_mbit = 800;  // for faster links the small load is too short to measure
constexpr int loads = 8;

struct Greeting {
  char secret[secret_bytes];
  std::int32_t number;
};
struct Request {
  char verb;
  std::uint32_t bytes;
};
struct Numbers {
  double latency_us, sends_mbit, receives_mbit, clock_ahead_s;
};

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Sends and receives whole blocks over a non-blocking socket, until a deadline.
class Conversation {
 public:
  Conversation(int socket, Deadline deadline) : socket_(socket), deadline_(deadline) {}
  bool send(const void* data, std::size_t size) {
    return move(size, POLLOUT, [&](std::size_t at) {
      return ::send(socket_, static_cast<const char*>(data) + at, size - at, MSG_NOSIGNAL);
    });
  }
  bool receive(void* data, std::size_t size) {
    return move(size, POLLIN,
                [&](std::size_t at) { return ::recv(socket_, static_cast<char*>(data) + at, size - at, 0); });
  }

 private:
  template <typename Step>
  bool move(std::size_t size, short event, Step step) {
    for (std::size_t done = 0; done < size;) {
      ssize_t count = step(done);
      if (count > 0) {
        done += static_cast<std::size_t>(count);
        continue;
      }
      if (count == 0 || (errno != EAGAIN && errno != EINTR)) return false;
      pollfd ready{socket_, event, 0};
      if (deadline_.passed() || ::poll(&ready, 1, static_cast<int>(deadline_.left().count())) == 0) return false;
    }
    return true;
  }
  int socket_;
  Deadline deadline_;
};

bool ping(Conversation& talk, Numbers& numbers) {
  double quickest = 1e9;
  for (int number = 0; number < pings; ++number) {
    const Request request{'P', 0};
    const double wall = wall_seconds();
    const auto begin = Clock::now();
    double theirs = 0;
    if (!talk.send(&request, sizeof request) || !talk.receive(&theirs, sizeof theirs)) return false;
    const double span = seconds_since(begin);
    if (span >= quickest) continue;
    quickest = span;
    numbers.clock_ahead_s = theirs - (wall + span / 2);
  }
  numbers.latency_us = quickest / 2 * 1e6;
  return true;
}

// Keeps the best of several rates, because the other node may be busy for a moment.
bool load(Conversation& talk, std::vector<char>& buffer, char verb, double& best_mbit) {
  std::size_t size = small_load;
  for (int number = 0; number < loads; ++number) {
    const Request request{verb, static_cast<std::uint32_t>(size)};
    char answer = 0;
    const auto begin = Clock::now();
    bool is_done =
        talk.send(&request, sizeof request) &&
        (verb == 'D' ? talk.send(buffer.data(), size) && talk.receive(&answer, 1) : talk.receive(buffer.data(), size));
    if (!is_done) return false;
    const double span = seconds_since(begin);
    best_mbit = std::max(best_mbit, static_cast<double>(size) * 8 / 1e6 / span);
    if (best_mbit < fast_mbit / 8) break;
    if (best_mbit > fast_mbit) size = large_load;
  }
  return true;
}

bool ask(Conversation& talk, std::vector<char>& buffer, Numbers& numbers) {
  if (!ping(talk, numbers) || !load(talk, buffer, 'D', numbers.sends_mbit) ||
      !load(talk, buffer, 'U', numbers.receives_mbit))
    return false;
  const Request end{'E', 0};
  return talk.send(&end, sizeof end) && talk.send(&numbers, sizeof numbers);
}

bool answer(Conversation& talk, std::vector<char>& buffer, Numbers& numbers) {
  for (;;) {
    Request request{};
    if (!talk.receive(&request, sizeof request) || request.bytes > buffer.size()) return false;
    const double now = wall_seconds();
    const char done = 1;
    switch (request.verb) {
      case 'P':
        if (!talk.send(&now, sizeof now)) return false;
        break;
      case 'D':
        if (!talk.receive(buffer.data(), request.bytes) || !talk.send(&done, 1)) return false;
        break;
      case 'U':
        if (!talk.send(buffer.data(), request.bytes)) return false;
        break;
      case 'E': {
        Numbers theirs{};
        if (!talk.receive(&theirs, sizeof theirs)) return false;
        numbers = {theirs.latency_us, theirs.receives_mbit, theirs.sends_mbit, -theirs.clock_ahead_s};
        return true;
      }
      default: return false;
    }
  }
}

class Rounds {
 public:
  Rounds(const posix::PeerSockets& here, int me, const std::vector<LinkEnd>& ends, const std::string& secret,
         Deadline deadline)
      : here_(here), me_(me), ends_(ends), secret_(secret), deadline_(deadline), buffer_(large_load) {}

  LinkResult with(int partner) {
    const LinkEnd& end = ends_[static_cast<std::size_t>(partner)];
    LinkResult result{end.host, 0, 0, 0, 0, "no time was left"};
    if (deadline_.passed()) return result;
    result.fault = me_ > partner ? cannot_connect : did_not_connect;
    Deadline deadline = Deadline::after(std::min<std::chrono::milliseconds>(deadline_.left(), 4s));
    posix::FileDescriptor socket = me_ > partner ? greet(end, deadline) : wait_for(partner, deadline);
    if (!socket) return result;
    Conversation talk(socket.get(), deadline);
    Numbers numbers{};
    bool is_done = me_ > partner ? ask(talk, buffer_, numbers) : answer(talk, buffer_, numbers);
    result.fault = is_done ? "" : "the connection was too slow, or broke";
    result.latency_us = numbers.latency_us;
    result.sends_mbit = numbers.sends_mbit;
    result.receives_mbit = numbers.receives_mbit;
    result.clock_ahead_s = numbers.clock_ahead_s;
    return result;
  }

 private:
  posix::FileDescriptor greet(const LinkEnd& end, Deadline deadline) {
    // Tries the nearest address of the other node first, as ranks do.
    posix::FileDescriptor socket = posix::connect_to_nearest(end.endpoints, here_.addresses, 1500ms, deadline);
    if (!socket) return {};
    Greeting greeting{};
    std::memcpy(greeting.secret, secret_.data(), std::min(secret_.size(), secret_bytes));
    greeting.number = me_;
    (void)posix::prepare_connection(socket.get(), 4s);
    return Conversation(socket.get(), deadline).send(&greeting, sizeof greeting) ? std::move(socket)
                                                                                 : posix::FileDescriptor();
  }

  // Accepts connections until this partner's comes. Partners of later rounds may come earlier; their connections are
  // kept.
  posix::FileDescriptor wait_for(int partner, Deadline deadline) {
    while (!early_.contains(partner)) {
      posix::FileDescriptor accepted = posix::accept_from_any(here_.sockets, deadline);
      if (!accepted) return {};
      Greeting greeting{};
      const Deadline soon = Deadline::after(std::min<std::chrono::milliseconds>(deadline.left(), 500ms));
      if (!Conversation(accepted.get(), soon).receive(&greeting, sizeof greeting)) continue;
      if (std::string_view(greeting.secret, secret_bytes) != secret_.substr(0, secret_bytes)) continue;
      (void)posix::prepare_connection(accepted.get(), 4s);
      early_[greeting.number] = std::move(accepted);
    }
    return std::move(early_.extract(partner).mapped());
  }

  const posix::PeerSockets& here_;
  int me_;
  const std::vector<LinkEnd>& ends_;
  std::string secret_;
  Deadline deadline_;
  std::vector<char> buffer_;
  std::map<int, posix::FileDescriptor> early_;
};

}  // namespace

std::string text_of(const std::vector<LinkResult>& results) {
  std::string text;
  for (const LinkResult& each : results) {
    char numbers[160];
    std::snprintf(numbers, sizeof numbers, "|%.3f|%.3f|%.3f|%.6f|", each.latency_us, each.sends_mbit,
                  each.receives_mbit, each.clock_ahead_s);
    text += each.peer + numbers + each.fault + "\n";
  }
  return text;
}

std::vector<LinkResult> link_results_in(std::string_view text) {
  std::vector<LinkResult> results;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    LinkResult each;
    char bar = 0;
    if (!std::getline(words, each.peer, '|')) continue;
    words >> each.latency_us >> bar >> each.sends_mbit >> bar >> each.receives_mbit >> bar >> each.clock_ahead_s >> bar;
    if (!words) continue;
    std::getline(words, each.fault);
    results.push_back(std::move(each));
  }
  return results;
}

// This is the circle method for tournaments: one node keeps its seat, all others move on by one seat after each round.
std::vector<std::vector<int>> rounds_of(int nodes, int most_rounds) {
  std::vector<std::vector<int>> rounds;
  const int seats = nodes + nodes % 2;
  for (int round = 0; round < std::min(seats - 1, most_rounds); ++round) {
    std::vector<int> partner(static_cast<std::size_t>(nodes), -1);
    auto who_sits = [&](int seat) { return seat == 0 ? 0 : (seat - 1 + round) % (seats - 1) + 1; };
    for (int seat = 0; seat < seats / 2; ++seat) {
      int one = who_sits(seat), other = who_sits(seats - 1 - seat);
      if (one >= nodes || other >= nodes) continue;
      partner[static_cast<std::size_t>(one)] = other;
      partner[static_cast<std::size_t>(other)] = one;
    }
    rounds.push_back(std::move(partner));
  }
  return rounds;
}

std::vector<LinkResult> measure_links(const posix::PeerSockets& here, int me, const std::vector<LinkEnd>& ends,
                                      const std::string& secret, Deadline deadline) {
  constexpr int most_rounds = 7;
  std::vector<LinkResult> results;
  Rounds rounds(here, me, ends, secret, deadline);
  for (const auto& partners : rounds_of(static_cast<int>(ends.size()), most_rounds)) {
    int partner = partners[static_cast<std::size_t>(me)];
    if (partner >= 0) results.push_back(rounds.with(partner));
  }
  return results;
}

}  // namespace hvd::launcher::preflight
