#pragma once
// A process at a store that is no rank of its job. It puts and gets values of any size (pieces.hpp).
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/bytes.hpp"
#include "base/deadline.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "bootstrap/store/client.hpp"

namespace hvd::bootstrap {

// Used by one thread at a time. The destructor leaves the store.
class StoreVisitor {
 public:
  // For `addresses` see enter_tcp_store().
  static Result<std::unique_ptr<StoreVisitor>> enter(std::string_view addresses, std::string_view port,
                                                     std::string_view secret, Deadline deadline);
  // Replaces an earlier value. Others see the whole value or none. The call takes as long as the bytes need, but fails
  // if the store does not answer.
  Status put(std::string_view key, ConstBytes value);
  // Returns the size of the value as soon as it is there. If the deadline has passed when the call begins, it only
  // checks whether there is a value.
  Result<std::uint64_t> size_of(std::string_view key, Deadline deadline);
  // Reads a value that is there. `into` has its size. With `forgets` the store drops the value, but not one of another
  // size.
  Status read(std::string_view key, Bytes into, bool forgets);
  // Tells the store that the process of a rank has ended.
  Status rank_ended(Rank rank, std::string_view how);

 private:
  explicit StoreVisitor(std::unique_ptr<StoreClient> client) : client_(std::move(client)) {}

  std::unique_ptr<StoreClient> client_;
};

}  // namespace hvd::bootstrap
