#pragma once
// Enters a store over TCP.
#include <memory>
#include <string>
#include <string_view>

#include "base/deadline.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "bootstrap/store/client.hpp"

namespace hvd::bootstrap {

// `addresses` belong to one host and are separated by commas ("10.0.0.3,[fd00::3]", or names). They are dialled in
// order, each one a moment after the address before it. The first address that answers as a store is taken. The store
// must then prove that it knows the secret. If nobody answers, the call fails at once, except for a store that
// `may_come_later`: then the addresses are tried, and the names looked up every few seconds, until the deadline.
enum class Store { is_there, may_come_later };
Result<std::unique_ptr<StoreClient>> enter_tcp_store(std::string_view addresses, std::string_view port,
                                                     std::string_view secret, Rank rank, int size, Deadline deadline,
                                                     Store store = Store::is_there);

}  // namespace hvd::bootstrap
