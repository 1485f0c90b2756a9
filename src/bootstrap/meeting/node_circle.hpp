#pragma once
// A node circle is the ranks of a node that meet the rest of the job as one. It is used if the store is far away: all
// ranks of the circle bring their cards to its first rank, and the first rank hands back the table of all ranks. The
// circle uses unix sockets of the abstract namespace, so it needs no file and no address. If the others cannot reach
// the first rank (each container has a network of its own), each rank goes to the store alone.
//
// 1. The first rank listens under a name that only this circle has, a new name for each exchange. The others connect as
//    soon as the first rank listens.
// 2. The first rank waits for the others. If nobody has come for `patience`, or for a sixth of the time that is left,
//    it goes on without the missing ranks, and posts a notice of that under another name. A rank that finds this
//    notice, or does not find the first rank for that long, asks the store itself from then on.
// 3. The answer is a descriptor of memory that holds the table, or an error.
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/deadline.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::bootstrap {

using BroughtCard = std::pair<Rank, Buffer>;

// Used by one thread at a time. Its calls block.
class NodeCircle {
 public:
  // `name` is equal in all ranks of the circle and unique on this machine. `others` is the number of the other ranks in
  // the circle.
  NodeCircle(std::string name, bool leads, int others, std::chrono::milliseconds patience = std::chrono::seconds(60));

  // Returns the table of all ranks. A rank that leads calls `ask` to get the table, with its own card and the cards
  // that the others brought.
  using Ask = std::function<Result<Buffer>(const std::vector<BroughtCard>& cards)>;
  Result<Buffer> table_of_all(BroughtCard mine, std::string_view key, Deadline deadline, const Ask& ask);

  // The parts of table_of_all() follow.
  // True if this rank asks for the table itself, with its own card and maybe with those of others.
  bool leads() const { return leads_; }

  // For the first rank: returns the cards that the others bring. hand_out() then answers the others.
  std::vector<BroughtCard> gather(std::string_view key, Deadline deadline);
  void hand_out(const Result<Buffer>& table);

  // For the other ranks: returns the table. Returns nullopt if this rank has to ask the store itself; leads() is true
  // from then on.
  std::optional<Result<Buffer>> bring(const BroughtCard& card, std::string_view key, Deadline deadline);

 private:
  std::string address(std::string_view key, std::string_view purpose) const;
  Result<posix::FileDescriptor> find_first(std::string_view key, Deadline deadline) const;

  std::string name_;
  bool leads_;
  std::size_t others_;
  std::chrono::milliseconds patience_;
  std::vector<posix::FileDescriptor> guests_;   // ranks whose cards have arrived
  std::vector<posix::FileDescriptor> notices_;  // tells late ranks that this rank went on without them
};

}  // namespace hvd::bootstrap
