#include <unistd.h>

#include "bootstrap/store/local_store.hpp"
#include "bootstrap/store/verbs.hpp"
#include "native/posix/sockets/unix_socket.hpp"

namespace hvd::bootstrap {

namespace {

Result<std::optional<StoreChannel>> connect_to(const std::string& address) {
  auto connected = posix::connect_to_unix_socket(address);
  if (!connected) {
    Error& error = connected.error();
    error.message =
        "cannot reach the launcher's local store (" + std::string(local_store::address_variable) +
        "): " + error.message +
        "; it ended, or this process is in another network namespace (a container started with one of its own)";
    return std::move(error);
  }
  if (!*connected) return std::optional<StoreChannel>();  // the listener's queue is full
  auto socket = std::make_shared<posix::FileDescriptor>(std::move(*connected));
  StoreChannel channel;
  channel.store = "the launcher's local store";
  channel.descriptor = socket->get();
  channel.send = [socket](ConstBytes message) { return posix::send_message(*socket, message); };
  channel.receive = [socket](Buffer& message) {
    posix::FileDescriptor unwanted;
    return posix::receive_message(*socket, message, unwanted);
  };
  return std::optional(std::move(channel));
}

}  // namespace

Result<std::unique_ptr<StoreClient>> LocalStoreClient::join(std::string_view address, std::string_view secret,
                                                            Rank rank, int size, Deadline deadline) {
  Buffer greeting;
  ByteWriter out(greeting);
  out.put(store::magic);
  out.put(store::wire_version);
  out.put_string(secret);
  out.put(rank.value);
  out.put(static_cast<std::int32_t>(size));
  out.put(static_cast<std::int32_t>(::getpid()));
  return StoreClient::enter([&] { return connect_to(std::string(address)); }, greeting, local_store::secret_variable,
                            rank, size, deadline);
}

}  // namespace hvd::bootstrap
