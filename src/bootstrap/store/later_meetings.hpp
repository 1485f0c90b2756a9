#pragma once
// A store that rank 0 itself serves. It is for launchers whose servers can do one exchange of values but not many. The
// first exchange tells all ranks where this store is.
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/deadline.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/settings/config.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/store/tcp_client.hpp"
#include "bootstrap/store/tcp_server.hpp"

namespace hvd::bootstrap {

class LaterMeetings {
 public:
  // On rank 0: starts the store. The result has to reach all others in the first exchange. If the store cannot start
  // (for example because there is no network), the ranks get the reason only when they want to meet again, and most
  // jobs never do.
  Buffer open(const Identity& identity, const Config& config);
  // On the other ranks: takes the result of rank 0's open(). Connects to the store at the first use.
  Status invited(const Identity& identity, ConstBytes invitation);

  Status put(std::string_view key, ConstBytes value);
  // Returns a value that was put before the last fence.
  Result<Buffer> get(Rank from, std::string_view key) const;
  // Each rank enters the store, takes all values and leaves the store. Rank 0 may end then, because nobody is connected
  // between meetings.
  Status fence(Deadline deadline);
  Result<Cards> exchange(std::string_view key, const Card& card, Deadline deadline);

 private:
  Identity identity_;
  std::string addresses_, port_, secret_;
  std::string why_not_;                     // why there is no store; empty if there is one
  std::unique_ptr<TcpStoreThread> server_;  // only rank 0 has a server
  std::uint64_t fences_ = 0;
  std::map<std::string, Buffer, std::less<>> mine_;        // what this rank has put since the last fence
  std::map<std::pair<Rank, std::string>, Buffer> values_;  // the values of all ranks
};

}  // namespace hvd::bootstrap
