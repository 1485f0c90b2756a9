#include "native/pmix/client.hpp"

#include <pmix.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/settings/environment.hpp"

namespace hvd::pmix {
namespace {

constexpr auto leave_time = std::chrono::seconds(5);
constexpr std::size_t largest_value = 1 << 20;  // servers limit a message to 16 MB for all values of a rank together

// PMIx exists once per process. Therefore these variables do, too.
std::atomic<int> clients_opened{0};
std::atomic<bool> stuck{false};  // true if some call of PMIx has never returned

std::string text_of(pmix_status_t status) {
  const char* text = PMIx_Error_string(status);
  return std::string(text != nullptr ? text : "?") + " (" + std::to_string(status) + ")";
}

std::string number_in_text(const std::string& all) {
  const std::size_t begin = std::min(all.find_first_of("0123456789"), all.size());
  return all.substr(begin, all.find_first_not_of("0123456789.abcr", begin) - begin);
}

// Names the versions of client and server for a handshake that failed. Mostly the rank is in a container whose release
// differs from the host's.
std::string both_versions() {
  const Environment environment = Environment::of_this_process();
  // OpenPMIx sets this variable since version 4
  const std::string server = number_in_text(environment.get("PMIX_VERSION").value_or(""));
  const std::string client = number_in_text(PMIx_Get_version());
  bool is_image = false;
  for (const char* name : {"HOROVOD_CONTAINER", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "container"})
    is_image = is_image || environment.has(name);
  return std::string(is_image ? " (host PMIx " : " (server PMIx ") + (server.empty() ? "of unknown release" : server) +
         (is_image ? ", image PMIx " : ", library PMIx ") + client + ")";
}

Error failure(const std::string& what, pmix_status_t status) {
  ErrorCode code = ErrorCode::system;
  if (status == PMIX_ERR_TIMEOUT) code = ErrorCode::timeout;
  if (status == PMIX_ERR_PARTIAL_SUCCESS || status == PMIX_ERR_LOST_CONNECTION || status == PMIX_ERR_UNREACH)
    code = ErrorCode::peer_lost;
  return {code, "PMIx: " + what + ": " + text_of(status)};
}

// An operation that PMIx finishes on its own thread. This thread and PMIx both hold it, so it may outlive our deadline.
// It also owns the arguments, which PMIx may read until the operation is over.
struct Operation {
  pmix_proc_t process{};
  std::string key;
  pmix_info_t info[1]{};
  std::mutex mutex;
  std::condition_variable finished;
  std::optional<pmix_status_t> status;
  Buffer value;
  std::uint64_t number = 0;

  // Filled here and not by PMIX_INFO_LOAD, which in PMIx 3 is other functions of the library than in PMIx 4. The value
  // owns no memory.
  pmix_value_t& directive(const char* name, pmix_data_type_t type) {
    PMIX_LOAD_KEY(info[0].key, name);
    info[0].value.type = type;
    return info[0].value;
  }
  void finish(pmix_status_t result) {
    std::lock_guard lock(mutex);
    status = result;
    finished.notify_one();
  }
  // Returns nullopt if the deadline passes first.
  std::optional<pmix_status_t> wait(Deadline deadline) {
    std::unique_lock lock(mutex);
    finished.wait_for(lock, deadline.left(), [&] { return status.has_value(); });
    return status;
  }
};

using Held = std::shared_ptr<Operation>;

// What PMIx has not finished yet. It is kept here and not by PMIx, which forgets what it has not finished when it ends.
class Unfinished {
 public:
  // Returns what PMIx hands to the callback.
  void* add(const Held& operation) {
    std::lock_guard lock(mutex_);
    operations_.emplace(operation.get(), operation);
    return operation.get();
  }
  Held take(void* data) {
    std::lock_guard lock(mutex_);
    return std::move(operations_.extract(data).mapped());
  }
  void clear() {
    std::lock_guard lock(mutex_);
    operations_.clear();
  }

 private:
  std::mutex mutex_;
  std::map<void*, Held> operations_;
};

// Never destroyed: a callback may still come while the process ends.
Unfinished& unfinished() {
  static auto* const all = new Unfinished;
  return *all;
}

// Some calls of PMIx block until the server answers, and forever if the server is stopped. Such a call is made on
// another thread. If the deadline passes, that thread is left behind and the result is nullopt.
std::optional<pmix_status_t> bounded(Deadline deadline, const std::function<pmix_status_t()>& call) {
  auto operation = std::make_shared<Operation>();
  try {
    std::thread([operation, call] { operation->finish(call()); }).detach();
  } catch (const std::system_error&) {
    return call();  // no thread can be started: a call without a deadline is better than none
  }
  std::optional<pmix_status_t> status = operation->wait(deadline);
  if (!status) stuck = true;
  return status;
}

void when_done(pmix_status_t status, void* data) {
  Held operation = unfinished().take(data);
  operation->finish(status);
}

void when_got(pmix_status_t status, pmix_value_t* value, void* data) {
  Held operation = unfinished().take(data);
  if (status == PMIX_SUCCESS && (value == nullptr || value->type != PMIX_BYTE_OBJECT)) status = PMIX_ERR_TYPE_MISMATCH;
  if (status == PMIX_SUCCESS) {
    auto* bytes = reinterpret_cast<const std::byte*>(value->data.bo.bytes);
    operation->value.assign(bytes, bytes + value->data.bo.size);
  }
  operation->finish(status);
}

// Servers send numbers as various types.
std::optional<std::uint64_t> number_in(const pmix_value_t& value) {
  auto if_not_negative = [](auto number) -> std::optional<std::uint64_t> {
    if (number < 0) return std::nullopt;
    return static_cast<std::uint64_t>(number);
  };
  switch (value.type) {
    case PMIX_BYTE: return value.data.byte;
    case PMIX_SIZE: return value.data.size;
    case PMIX_UINT: return value.data.uint;
    case PMIX_UINT8: return value.data.uint8;
    case PMIX_UINT16: return value.data.uint16;
    case PMIX_UINT32: return value.data.uint32;
    case PMIX_UINT64: return value.data.uint64;
    case PMIX_PROC_RANK: return value.data.rank;
    case PMIX_INT: return if_not_negative(value.data.integer);
    case PMIX_INT8: return if_not_negative(value.data.int8);
    case PMIX_INT16: return if_not_negative(value.data.int16);
    case PMIX_INT32: return if_not_negative(value.data.int32);
    case PMIX_INT64: return if_not_negative(value.data.int64);
    default: return std::nullopt;
  }
}

void when_got_number(pmix_status_t status, pmix_value_t* value, void* data) {
  Held operation = unfinished().take(data);
  std::optional<std::uint64_t> number;
  if (status == PMIX_SUCCESS && value != nullptr) number = number_in(*value);
  if (status == PMIX_SUCCESS && !number) status = PMIX_ERR_TYPE_MISMATCH;
  operation->number = number.value_or(0);
  operation->finish(status);
}

}  // namespace

Result<std::unique_ptr<Client>> Client::open(Deadline deadline) {
  if (stuck) return Error(ErrorCode::system, "PMIx: the server did not answer this process before");
  auto me = std::make_shared<pmix_proc_t>();
  std::optional<pmix_status_t> answer = bounded(deadline, [me] { return PMIx_Init(me.get(), nullptr, 0); });
  if (!answer)
    return Error(ErrorCode::timeout,
                 "PMIx_Init: the job's PMIx server accepts connections but does not answer" + both_versions());
  // With UNREACH PMIx says "there is no server, be a job of one rank". We do not guess whether the user wants that.
  if (*answer == PMIX_ERR_UNREACH) {
    // Finalize is correct in a job of one rank. After a failed search for a server it crashes (4.2.2).
    if (std::string_view(me->nspace).starts_with("singleton.")) PMIx_Finalize(nullptr, 0);
    return Error(ErrorCode::unsupported,
                 "the job's PMIx server cannot be reached (it ended, or its socket or folder is not visible from this "
                 "container, or PMIX_NAMESPACE was inherited from a job that is over)" +
                     both_versions());
  }
  if (*answer != PMIX_SUCCESS)
    return Error(ErrorCode::unsupported, "PMIx_Init failed: " + text_of(*answer) + both_versions());
  std::unique_ptr<Client> client(new Client);
  client->process_ = ::getpid();
  client->reopened_ = clients_opened++ > 0;
  client->job_ = me->nspace;
  client->rank_ = me->rank;
  auto size = client->read_size(deadline);
  if (!size) return std::move(size.error());
  client->size_ = *size;
  if (client->rank_ >= client->size_)
    return Error(ErrorCode::system, "PMIx: this is rank " + std::to_string(client->rank_) + " of a job of " +
                                        std::to_string(client->size_) + " ranks: the launcher contradicts itself");
  return client;
}

Client::~Client() {
  if (::getpid() != process_) return;  // a forked child shares the connection and must leave it alone
  const auto ended = bounded(Deadline::after(leave_time), [] { return PMIx_Finalize(nullptr, 0); });
  if (ended == PMIX_SUCCESS && PMIx_Initialized() == 0) unfinished().clear();
}

Result<std::uint32_t> Client::read_size(Deadline deadline) {
  const std::string what = "reading the job's size (" PMIX_JOB_SIZE ")";
  auto operation = std::make_shared<Operation>();
  PMIX_LOAD_PROCID(&operation->process, job_.c_str(), PMIX_RANK_WILDCARD);
  // The value comes with PMIx_Init, but not with the second PMIx_Init of a process (4.2.2). So the server must be
  // asked, and OPTIONAL is not set.
  void* handed = unfinished().add(operation);
  pmix_status_t started = PMIx_Get_nb(&operation->process, PMIX_JOB_SIZE, nullptr, 0, &when_got_number, handed);
  if (started != PMIX_SUCCESS) {
    unfinished().take(handed);
    return failure(what, started);
  }
  std::optional<pmix_status_t> status = operation->wait(deadline);
  if (!status) return Error(ErrorCode::timeout, "PMIx: " + what + ": the server does not answer");
  if (*status != PMIX_SUCCESS) return failure(what, *status);
  if (operation->number < 1 || operation->number > INT32_MAX)
    return Error(ErrorCode::system,
                 "PMIx: " + what + ": " + std::to_string(operation->number) + " is no number of ranks");
  return static_cast<std::uint32_t>(operation->number);
}

Status Client::put(std::string_view key, ConstBytes bytes) {
  if (key.empty() || key.size() > PMIX_MAX_KEYLEN || bytes.size() > largest_value)
    return Error(ErrorCode::invalid_argument, "PMIx takes keys of 1 to " + std::to_string(PMIX_MAX_KEYLEN) +
                                                  " bytes, and we values of up to " + std::to_string(largest_value) +
                                                  "; found " + std::to_string(key.size()) + " and " +
                                                  std::to_string(bytes.size()));
  pmix_value_t value{};
  value.type = PMIX_BYTE_OBJECT;
  value.data.bo.bytes = const_cast<char*>(reinterpret_cast<const char*>(bytes.data()));  // PMIx_Put copies the bytes
  value.data.bo.size = bytes.size();
  std::string name(key);
  if (pmix_status_t status = PMIx_Put(PMIX_GLOBAL, name.c_str(), &value); status != PMIX_SUCCESS)
    return failure("putting \"" + name + "\"", status);
  return {};
}

Status Client::fence(Deadline deadline) {
  if (!broken_.empty()) return Error(ErrorCode::peer_lost, broken_);
  std::optional<pmix_status_t> committed = bounded(deadline, [] { return PMIx_Commit(); });
  if (!committed) {
    broken_ = "PMIx: the server took what was put, but does not answer";
    return Error(ErrorCode::timeout, broken_);
  }
  if (*committed != PMIX_SUCCESS) return failure("committing what was put", *committed);
  for (;;) {
    std::optional<pmix_status_t> status = fence_once(deadline);
    if (!status) {
      broken_ = "PMIx: not all " + std::to_string(size_) + " ranks arrived at the fence in time";
      return Error(ErrorCode::timeout, broken_);
    }
    if (*status == PMIX_SUCCESS) return {};
    // A peer that finalizes while we wait counts as lost. If this is not the process's first client, the peer may be
    // about to open its next client, too. All ranks that waited got this answer, so all of them try again together.
    if (*status == PMIX_ERR_PARTIAL_SUCCESS && reopened_ && !deadline.passed()) continue;
    Error error = failure("the fence failed, probably because a rank ended", *status);
    broken_ = error.message;
    return error;
  }
}

// Returns nullopt if the deadline passes first.
std::optional<int> Client::fence_once(Deadline deadline) {
  auto operation = std::make_shared<Operation>();
  PMIX_LOAD_PROCID(&operation->process, job_.c_str(), PMIX_RANK_WILDCARD);
  // Without COLLECT_DATA a fence is not even a barrier on some servers. PMIX_TIMEOUT does not limit a fence, but our
  // deadline does.
  operation->directive(PMIX_COLLECT_DATA, PMIX_BOOL).data.flag = true;
  void* handed = unfinished().add(operation);
  pmix_status_t started = PMIx_Fence_nb(&operation->process, 1, operation->info, 1, &when_done, handed);
  if (started != PMIX_SUCCESS) unfinished().take(handed);  // PMIx calls the callback after a success alone
  if (started == PMIX_OPERATION_SUCCEEDED) return PMIX_SUCCESS;
  if (started != PMIX_SUCCESS) return started;
  return operation->wait(deadline);
}

Result<Buffer> Client::get(std::uint32_t rank, std::string_view key, Deadline deadline) {
  std::string what = "getting \"" + std::string(key) + "\" of rank " + std::to_string(rank);
  // Servers do not answer for ranks that the job does not have.
  if (rank >= size_ || key.empty() || key.size() > PMIX_MAX_KEYLEN)
    return Error(ErrorCode::invalid_argument, what + ": there are " + std::to_string(size_) + " ranks");
  auto operation = std::make_shared<Operation>();
  PMIX_LOAD_PROCID(&operation->process, job_.c_str(), rank);
  operation->key = key;
  // Lets the server forget the request after this time, if it can do so. Our own deadline decides.
  operation->directive(PMIX_TIMEOUT, PMIX_INT).data.integer =
      static_cast<int>(std::min<std::int64_t>(deadline.left().count() / 1000 + 1, std::int64_t{24} * 3600));
  void* handed = unfinished().add(operation);
  pmix_status_t started =
      PMIx_Get_nb(&operation->process, operation->key.c_str(), operation->info, 1, &when_got, handed);
  if (started != PMIX_SUCCESS) {
    unfinished().take(handed);
    return failure(what, started);
  }
  std::optional<pmix_status_t> status = operation->wait(deadline);
  if (!status) return Error(ErrorCode::timeout, "PMIx: " + what + " took too long");
  if (*status != PMIX_SUCCESS) return failure(what, *status);
  return std::move(operation->value);
}

void Client::abort(std::string_view reason) noexcept {
  (void)bounded(Deadline::after(leave_time),
                [text = std::string(reason)] { return PMIx_Abort(1, text.c_str(), nullptr, 0); });
}

}  // namespace hvd::pmix
