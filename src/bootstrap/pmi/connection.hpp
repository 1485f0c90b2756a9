#pragma once
// This process's connection to a PMI-1 server: MPICH's Hydra, srun --mpi=pmi2, Flux, PALS.
//
// Wire protocol, lines of text over a stream socket:
//  1. The socket is the descriptor PMI_FD. Otherwise the client connects to PMI_PORT=host:port and sends
//     `cmd=initack pmiid=ID` (PMI_ID); the server answers with `cmd=initack` and lines `cmd=set` with size and rank.
//  2. A line is `cmd=X key=value key=value`; values have no blanks. The client sends one request at a time and the
//     server answers it:
//     init → response_to_init, get_maxes → maxes, get_my_kvsname → my_kvsname, put → put_result, get → get_result,
//     barrier_in → barrier_out when all ranks are in, finalize → finalize_ack; abort has no answer.
//  3. A value that was put before a barrier can be got after the barrier. Lines are limited to some hundred bytes
//     (get_maxes).
//  4. A process sends init and finalize once in its life (srun ends the job at a second init). The server takes a
//     connection that ends without finalize for the death of the process. Therefore all parts of a process share one
//     connection. If an MPI library came first, we use its connection between its own requests, and send no init and no
//     finalize. If we come first, the descriptor PMI_FD becomes a socket to a thread of ours (the doorway). The doorway
//     passes the library's requests on to the server and answers the library's init and finalize itself.
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "base/deadline.hpp"
#include "base/result.hpp"
#include "base/settings/environment.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::bootstrap::pmi {

// Returns the value of a key in a line; empty if the key is not there. The value of the key "value" reaches to the end
// of the line.
std::string_view value_in(std::string_view line, std::string_view key);

// Requests may come from any thread. They are made one at a time.
class Connection {
 public:
  // `mpi_was_first`: an MPI library of this process has initialised and has not finalised yet.
  static Result<std::unique_ptr<Connection>> open(const Environment& environment, bool mpi_was_first,
                                                  Deadline deadline);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& key_value_space() const { return key_value_space_; }
  std::size_t longest_value() const { return longest_value_; }

  // Sends the request "cmd=…" and returns the answer. The command of the answer must be `answer`.
  Result<std::string> ask(const std::string& request, std::string_view answer, Deadline deadline);
  Status put(const std::string& key, const std::string& value, Deadline deadline);
  Result<std::string> get(const std::string& key, Deadline deadline);
  Status barrier(Deadline deadline);
  void abort() noexcept;
  // Sends finalize unless an MPI library will send it. Nothing can be asked afterwards.
  void finalize() noexcept;

 private:
  Connection() = default;
  // The caller holds the mutex.
  Result<std::string> ask_alone(const std::string& request, std::string_view answer, Deadline deadline);
  Status take_descriptor(int descriptor);
  Status dial(const std::string& address, const std::string& id, Deadline deadline);
  Status greet(Deadline deadline);
  Status open_doorway(int descriptor);
  void serve_doorway();
  std::string answer_for_library(const std::string& request);
  Status send_line(const std::string& line, Deadline deadline);
  Result<std::string> read_line(Deadline deadline);
  Error gone();

  std::mutex mutex_;  // guards everything about the socket
  posix::FileDescriptor socket_;
  std::string unread_;
  std::string broken_;  // why nothing can be asked any more; empty if all is well
  bool library_finalizes_ = false;
  bool finalized_ = false;
  int process_ = 0;

  posix::FileDescriptor inner_door_;  // our end of the socket that the MPI library takes for its server
  std::thread doorkeeper_;

  int rank_ = -1;
  int size_ = 0;
  std::string key_value_space_;
  std::size_t longest_value_ = 0;
};

}  // namespace hvd::bootstrap::pmi
