#pragma once
// The chain carries the archive from node to node: the first node reads the file, and each node passes the blocks on to
// the next.
//
// The protocol between two neighbours: the earlier node connects and sends the job's secret. Then it sends blocks;
// before each block are its size and its checksum (crc32c). An empty block is the last one. The digest of the whole
// archive follows it.
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/checksums/sha256.hpp"
#include "base/deadline.hpp"
#include "base/result.hpp"
#include "native/posix/sockets/endpoints.hpp"

namespace hvd::launcher::staging {

inline constexpr std::size_t block_bytes = 1 << 20;
inline constexpr std::size_t secret_bytes = 64;

// One end of the connection between two neighbours of the chain. Its calls block.
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
  // Returns the next block, which is valid until the next call. An empty block means that the archive is complete;
  // `digest` is then set.
  Result<ConstBytes> receive(Digest& digest);

 private:
  Neighbour(std::string host, posix::FileDescriptor socket) : host_(std::move(host)), socket_(std::move(socket)) {}
  Error lost(int error) const;
  std::string host_;
  posix::FileDescriptor socket_;
  Buffer block_;
};

}  // namespace hvd::launcher::staging
