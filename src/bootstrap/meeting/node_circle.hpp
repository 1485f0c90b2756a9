#pragma once
// The ranks of a node that meet as one, if what they meet at is far away: they bring their cards to the first of them,
// which hands back the table of all ranks. It goes over unix sockets of the abstract namespace, so it needs no file and
// no address. If the others cannot reach the first one (containers with networks of their own), each goes alone.
//
// 1. The first rank listens under a name that only this circle has, a new one for each exchange. The others come when
//    it is there.
// 2. It waits while they come. If nobody has come for `patience`, or for a sixth of the time that is left, it goes on
//    without the others, and says so under another name. A rank that finds this, or finds nobody for that long, goes
//    alone from then on.
// 3. The answer is a descriptor of memory with the table, or an error.
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
#include "native/posix/file_descriptor.hpp"

namespace hvd::bootstrap {

using BroughtCard = std::pair<Rank, Buffer>;

// Used by one thread at a time. Blocks.
class NodeCircle {
 public:
  // `name` is equal in the circle and unique on this machine; `others` are in it besides this rank.
  NodeCircle(std::string name, bool leads, int others, std::chrono::milliseconds patience = std::chrono::seconds(60));

  // The table of all ranks. A rank that acts for itself, and maybe for others, gets it by `ask` with the cards that it
  // has.
  using Ask = std::function<Result<Buffer>(const std::vector<BroughtCard>& cards)>;
  Result<Buffer> table_of_all(BroughtCard mine, std::string_view key, Deadline deadline, const Ask& ask);

  // The parts of table_of_all().
  // Whether this rank acts for itself, and maybe for others.
  bool leads() const { return leads_; }

  // For the first rank: the cards that the others bring. hand_out() then answers them.
  std::vector<BroughtCard> gather(std::string_view key, Deadline deadline);
  void hand_out(const Result<Buffer>& table);

  // For the others: the table. Nothing if this rank has to go alone; leads() is true from then on.
  std::optional<Result<Buffer>> bring(const BroughtCard& card, std::string_view key, Deadline deadline);

 private:
  std::string address(std::string_view key, std::string_view purpose) const;
  Result<posix::FileDescriptor> find_first(std::string_view key, Deadline deadline) const;

  std::string name_;
  bool leads_;
  std::size_t others_;
  std::chrono::milliseconds patience_;
  std::vector<posix::FileDescriptor> guests_;   // ranks whose cards are here
  std::vector<posix::FileDescriptor> notices_;  // say that this rank went on without some
};

}  // namespace hvd::bootstrap
