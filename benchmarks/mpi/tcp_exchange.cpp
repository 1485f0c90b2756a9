// Two ranks swap messages over TCP. Compared are our link, MPI_Sendrecv (of an MPI that was told to use TCP), and a
// hand-written loop over one socket, which takes the least possible time.
#include <mpi.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "link/our_tcp_link.hpp"
#include "mpi/job.hpp"
#include "mpi/measure.hpp"
#include "mpi/options.hpp"

namespace hvd::benchmark {
namespace {

void exchange_by_hand(const Job& job, int socket, ConstBytes out, Bytes in) {
  constexpr std::size_t stride = 1 << 20;
  auto moved = [&](ssize_t result) -> std::size_t {
    if (result > 0) return static_cast<std::size_t>(result);
    if (result == 0 || (errno != EAGAIN && errno != EINTR)) job.fail("the bare connection broke");
    return 0;
  };
  while (!out.empty() || !in.empty()) {
    if (!out.empty()) out = out.subspan(moved(::send(socket, out.data(), std::min(out.size(), stride), MSG_NOSIGNAL)));
    if (!in.empty()) in = in.subspan(moved(::recv(socket, in.data(), std::min(in.size(), stride), 0)));
  }
}

void run(Job& job, const Options& options) {
  Recorder recorder(job, options.text("out"),
                    {{"program", json("tcp_exchange")},
                     {"peer", json(options.text("peer"))},
                     {"variant", json(options.text("variant"))},
                     {"launch", json(options.count("launch"))},
                     {"mpi_version", json(job.mpi_version())}});
  OurTcpLink link(job.ranks());
  const int peer = 1 - job.rank();
  posix::FileDescriptor bare = link.bare_connection(peer);
  Effort effort;
  effort.rounds = options.count("rounds");
  effort.seconds = options.number("seconds");
  for (std::size_t bytes : {std::size_t{8}, std::size_t{512}, std::size_t{4096}, std::size_t{65536},
                            std::size_t{1} << 20, std::size_t{16} << 20, std::size_t{64} << 20}) {
    if (bytes > options.bytes("largest")) continue;
    Buffer out(bytes), in(bytes);
    Workload workload;
    workload.description = {{"workload", json("exchange")},
                            {"dtype", json("uint8")},
                            {"bytes", json(bytes)},
                            {"ranks", json(job.size())},
                            {"cores", json(job.cores())}};
    workload.write = [&](int turn) {
      std::memset(out.data(), 1 + job.rank() + turn % 7, bytes);
      std::memset(in.data(), 0, bytes);
    };
    workload.is_right = [&](int turn) {
      auto expected = static_cast<std::byte>(1 + peer + turn % 7);
      return std::all_of(in.begin(), in.end(), [=](std::byte each) { return each == expected; });
    };
    workload.back_to_back = bytes <= 65536;
    auto count = static_cast<int>(bytes);
    workload.contenders = {{"mpi",
                            [&] {
                              MPI_Sendrecv(out.data(), count, MPI_BYTE, peer, 0, in.data(), count, MPI_BYTE, peer, 0,
                                           MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                            }},
                           {"hand", [&] { exchange_by_hand(job, bare.get(), out, in); }},
                           {"ours", [&] { link.exchange(peer, out, in); }}};
    recorder.measure(workload, effort);
  }
}

}  // namespace
}  // namespace hvd::benchmark

int main(int argument_count, char** arguments) {
  using namespace hvd::benchmark;
  Options options(argument_count, arguments,
                  {{"out", "-"},
                   {"peer", "mpi"},
                   {"variant", "tcp"},
                   {"launch", "0"},
                   {"largest", "67108864"},
                   {"rounds", "5"},
                   {"seconds", "0.03"}});
  Job job(true, false);
  if (job.size() != 2) job.fail("tcp_exchange wants two ranks");
  run(job, options);
}
