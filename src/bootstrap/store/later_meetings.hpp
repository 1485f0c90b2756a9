#pragma once
// A store that rank 0 itself serves, for launchers whose servers stand one exchange of values but not many. The first
// exchange tells all ranks where it is.
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/config.hpp"
#include "base/deadline.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/store/tcp_client.hpp"
#include "bootstrap/store/tcp_server.hpp"

namespace hvd::bootstrap {

class LaterMeetings {
 public:
  // On rank 0: starts the store. The result goes to all others in the first exchange. If the store cannot start (there
  // is no network, say), the ranks learn why when they want to meet again, which most jobs never do.
  Buffer open(const Identity& identity, const Config& config);
  // On the others: takes what rank 0 returned. Connects at the first use.
  Status invited(const Identity& identity, ConstBytes invitation);

  Status put(std::string_view key, ConstBytes value);
  // Values that were put before the last fence.
  Result<Buffer> get(Rank from, std::string_view key) const;
  // Each rank enters the store, and leaves it with all values. Then rank 0 may end: between meetings nobody is
  // connected.
  Status fence(Deadline deadline);
  Result<Cards> exchange(std::string_view key, const Card& card, Deadline deadline);

 private:
  Identity identity_;
  std::string addresses_, port_, secret_;
  std::string why_not_;                     // why there is no store
  std::unique_ptr<TcpStoreThread> server_;  // on rank 0
  std::uint64_t fences_ = 0;
  std::map<std::string, Buffer, std::less<>> mine_;        // put since the last fence
  std::map<std::pair<Rank, std::string>, Buffer> values_;  // of all ranks
};

}  // namespace hvd::bootstrap
