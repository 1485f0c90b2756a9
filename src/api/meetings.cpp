// The C functions of meetings. A meeting is a store with a thread (in the process that opened it), and a visit to it.
#include <unistd.h>

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/answer.hpp"
#include "api/callbacks.hpp"
#include "base/settings/config.hpp"
#include "base/settings/environment.hpp"
#include "base/text/comma_list.hpp"
#include "bootstrap/store/tcp_server.hpp"
#include "bootstrap/store/visitor.hpp"
#include "native/posix/files/random.hpp"
#include "native/posix/files/settings_files.hpp"

using hvd::Config;
using hvd::Deadline;
using hvd::Error;
using hvd::ErrorCode;
using hvd::Rank;
using hvd::Result;
using hvd::api::copy_in;
using hvd::api::fail;
using hvd::api::refuse_in_callback;
using hvd::bootstrap::StoreVisitor;
using hvd::bootstrap::TcpStoreServer;
using hvd::bootstrap::TcpStoreThread;

struct hvd_meeting {
  // the only process that may use it: forked children have neither its thread nor its sockets
  pid_t process = ::getpid();
  std::mutex mutex;  // one call at a time uses the visitor
  int size = 0;
  std::unique_ptr<TcpStoreThread> server;  // null in a process that has entered
  std::unique_ptr<StoreVisitor> visitor;   // leaves before the server ends, which waits for those who are in
};

namespace {

Deadline deadline_of(std::int64_t timeout_ms) {
  // A limit of years is none. With it the clock cannot overflow.
  constexpr std::int64_t most_ms = 1000LL * 3600 * 24 * 3650;
  return timeout_ms < 0 || timeout_ms > most_ms ? Deadline::never()
                                                : Deadline::after(std::chrono::milliseconds(timeout_ms));
}

Result<std::unique_ptr<hvd_meeting>> open(const hvd_meeting_options& options) {
  std::vector<std::string> warnings;  // hvd_init() shows them in the ranks
  auto environment = hvd::posix::with_settings_files(hvd::Environment::of_this_process(), warnings);
  if (!environment) return std::move(environment.error());
  auto config = Config::from(*environment, warnings);
  if (!config) return std::move(config.error());
  TcpStoreServer::Options store;
  store.job = "meeting-" + hvd::posix::random_hex(8);
  store.size = options.size;
  store.secret = hvd::posix::random_hex(32);
  store.takes_visitors = true;
  store.interfaces =
      hvd::items_of(options.interfaces != nullptr ? std::string(options.interfaces) : config->network_interfaces);
  store.first_port = options.first_port > 0 ? options.first_port : config->port_range.first;
  store.last_port = options.first_port > 0 ? options.last_port : config->port_range.last;
  std::string secret = store.secret;
  auto server = TcpStoreThread::start(std::move(store));
  if (!server) return std::move(server.error());
  auto made = std::make_unique<hvd_meeting>();
  made->size = options.size;
  made->server = std::move(*server);
  constexpr auto time_to_enter = std::chrono::seconds(30);
  const TcpStoreServer& opened = made->server->server();
  auto visitor =
      StoreVisitor::enter(opened.addresses(), std::to_string(opened.port()), secret, Deadline::after(time_to_enter));
  if (!visitor) return std::move(visitor.error());
  made->visitor = std::move(*visitor);
  return made;
}

bool usable(const hvd_meeting* meeting) {
  return meeting != nullptr && meeting->process == ::getpid();
}

hvd_status why_unusable(const hvd_meeting* meeting, const char* function) {
  if (meeting == nullptr)
    return fail(ErrorCode::invalid_argument, std::string(function) + " needs a meeting; got null");
  return fail(ErrorCode::invalid_argument, std::string(function) + ": process " + std::to_string(meeting->process) +
                                               " has this meeting, and this one was forked from it: enter it anew "
                                               "(hvd_meeting_enter)");
}

hvd_status missing_argument(const char* function) {
  return fail(ErrorCode::invalid_argument,
              std::string(function) + " got a null pointer instead of a value or of a place for one");
}

}  // namespace

extern "C" {

hvd_status hvd_meeting_open(const hvd_meeting_options* options, hvd_meeting** meeting) {
  if (refuse_in_callback("hvd_meeting_open")) return HVD_INVALID_ARGUMENT;
  hvd_meeting_options ours;
  if (const hvd_status status = copy_in("hvd_meeting_options", options, sizeof ours, ours)) return status;
  if (meeting == nullptr) return missing_argument("hvd_meeting_open");
  *meeting = nullptr;
  if (ours.size < 1 || ours.first_port < 0 || ours.last_port < ours.first_port || ours.last_port > 65535)
    return fail(ErrorCode::invalid_argument,
                "a meeting needs 1 rank or more and ports from 1 to 65535, or 0; found " + std::to_string(ours.size) +
                    " ranks and ports " + std::to_string(ours.first_port) + " to " + std::to_string(ours.last_port));
  auto opened = open(ours);
  if (!opened) return fail(opened.error());
  *meeting = opened->release();
  return HVD_OK;
}

hvd_status hvd_meeting_enter(const char* addresses, const char* port, const char* secret, int64_t timeout_ms,
                             hvd_meeting** meeting) {
  if (refuse_in_callback("hvd_meeting_enter")) return HVD_INVALID_ARGUMENT;
  if (addresses == nullptr || port == nullptr || secret == nullptr || meeting == nullptr)
    return missing_argument("hvd_meeting_enter");
  *meeting = nullptr;
  auto visitor = StoreVisitor::enter(addresses, port, secret, deadline_of(timeout_ms));
  if (!visitor) return fail(visitor.error());
  *meeting = new hvd_meeting;
  (*meeting)->visitor = std::move(*visitor);
  return HVD_OK;
}

hvd_status hvd_meeting_variables(hvd_meeting* meeting, int rank,
                                 void (*visit)(void* context, const char* name, const char* value), void* context) {
  if (!usable(meeting)) return why_unusable(meeting, "hvd_meeting_variables");
  if (visit == nullptr) return missing_argument("hvd_meeting_variables");
  if (meeting->server == nullptr || rank < 0 || rank >= meeting->size)
    return fail(ErrorCode::invalid_argument,
                "variables for rank " + std::to_string(rank) +
                    " were wanted; expected a rank of a meeting that this process has opened, which has " +
                    std::to_string(meeting->size) + " ranks");
  auto variables = meeting->server->server().variables();
  variables.emplace_back("HOROVOD_RANK", std::to_string(rank));
  variables.emplace_back("HOROVOD_SIZE", std::to_string(meeting->size));
  // The processes may have been started by a launcher whose ranks they are not.
  variables.emplace_back("HOROVOD_BOOTSTRAP", "rendezvous");
  variables.emplace_back("HOROVOD_MPI", "none");
  for (const auto& [name, value] : variables) visit(context, name.c_str(), value.c_str());
  return HVD_OK;
}

hvd_status hvd_meeting_rank_ended(hvd_meeting* meeting, int rank, const char* how) {
  if (refuse_in_callback("hvd_meeting_rank_ended")) return HVD_INVALID_ARGUMENT;
  if (!usable(meeting)) return why_unusable(meeting, "hvd_meeting_rank_ended");
  const std::lock_guard lock(meeting->mutex);
  auto told = meeting->visitor->rank_ended(Rank{rank}, how == nullptr ? "" : how);
  return told ? HVD_OK : fail(told.error());
}

hvd_status hvd_meeting_put(hvd_meeting* meeting, const char* key, const void* data, size_t bytes) {
  if (refuse_in_callback("hvd_meeting_put")) return HVD_INVALID_ARGUMENT;
  if (!usable(meeting)) return why_unusable(meeting, "hvd_meeting_put");
  if (key == nullptr || (data == nullptr && bytes > 0)) return missing_argument("hvd_meeting_put");
  const std::lock_guard lock(meeting->mutex);
  auto put = meeting->visitor->put(key, std::span(static_cast<const std::byte*>(data), bytes));
  return put ? HVD_OK : fail(put.error());
}

hvd_status hvd_meeting_wait(hvd_meeting* meeting, const char* key, int64_t timeout_ms, size_t* bytes) {
  if (refuse_in_callback("hvd_meeting_wait")) return HVD_INVALID_ARGUMENT;
  if (!usable(meeting)) return why_unusable(meeting, "hvd_meeting_wait");
  if (key == nullptr || bytes == nullptr) return missing_argument("hvd_meeting_wait");
  const std::lock_guard lock(meeting->mutex);
  auto size = meeting->visitor->size_of(key, deadline_of(timeout_ms));
  if (!size) return fail(size.error());
  *bytes = static_cast<size_t>(*size);
  return HVD_OK;
}

hvd_status hvd_meeting_get(hvd_meeting* meeting, const char* key, void* data, size_t bytes, int forget) {
  if (refuse_in_callback("hvd_meeting_get")) return HVD_INVALID_ARGUMENT;
  if (!usable(meeting)) return why_unusable(meeting, "hvd_meeting_get");
  if (key == nullptr || (data == nullptr && bytes > 0)) return missing_argument("hvd_meeting_get");
  const std::lock_guard lock(meeting->mutex);
  auto read = meeting->visitor->read(key, std::span(static_cast<std::byte*>(data), bytes), forget != 0);
  return read ? HVD_OK : fail(read.error());
}

void hvd_meeting_close(hvd_meeting* meeting) {
  if (!refuse_in_callback("hvd_meeting_close") && usable(meeting)) delete meeting;
}

}  // extern "C"
