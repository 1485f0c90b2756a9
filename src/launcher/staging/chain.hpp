#pragma once
// The archive goes from node to node: the first one reads it, each one passes on to the next what it gets.
//
// Between two of them: the one before connects and sends the secret of the job. Then come blocks, each with its size
// and checksum (crc32c) before it; an empty one is the last, and the digest of the whole follows.
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/deadline.hpp"
#include "base/result.hpp"
#include "base/sha256.hpp"
#include "native/posix/endpoints.hpp"

namespace hvd::launcher::staging {

inline constexpr std::size_t block_bytes = 1 << 20;
inline constexpr std::size_t secret_bytes = 64;

// One end of the connection of two neighbours. Its calls block.
class Neighbour {
 public:
  // `secret` has secret_bytes.
  static Result<Neighbour> dial(const std::string& host, const std::string& endpoints,
                                const std::vector<posix::InterfaceAddress>& own, const std::string& secret,
                                Deadline deadline);
  // Connections of strangers are dropped.
  static Result<Neighbour> wait_for(const std::string& host, const posix::PeerSockets& sockets,
                                    const std::string& secret, Deadline deadline);

  Status send(ConstBytes block);
  Status send_end(const Digest& digest);
  // Returns the next block, which is valid until the next call. Empty: it was the last, and `digest` is set.
  Result<ConstBytes> receive(Digest& digest);

 private:
  Neighbour(std::string host, posix::FileDescriptor socket) : host_(std::move(host)), socket_(std::move(socket)) {}
  Error lost(int error) const;
  std::string host_;
  posix::FileDescriptor socket_;
  Buffer block_;
};

}  // namespace hvd::launcher::staging
