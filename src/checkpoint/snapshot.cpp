#include "checkpoint/snapshot.hpp"

#include <atomic>
#include <vector>

#include "checkpoint/share.hpp"
#include "devices/host/host_kernels.hpp"

namespace hvd::checkpoint {

void copy_all(std::span<const Copy> copies) {
  constexpr std::size_t piece_bytes = 1 << 20, least_pieces_each = 4;
  std::vector<Copy> pieces;
  for (const Copy& copy : copies)
    for (std::size_t done = 0; done < copy.bytes; done += piece_bytes)
      pieces.push_back({static_cast<std::byte*>(copy.to) + done, static_cast<const std::byte*>(copy.from) + done,
                        std::min(piece_bytes, copy.bytes - done)});
  std::atomic<std::size_t> next{0};
  share(helpers_for(pieces.size(), least_pieces_each), "hvd-snapshot", [&] {
    for (std::size_t at = next++; at < pieces.size(); at = next++)
      devices::copy_streaming(pieces[at].to, pieces[at].from, pieces[at].bytes);
  });
}

}  // namespace hvd::checkpoint
