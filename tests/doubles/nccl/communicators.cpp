// Entry points: starts and ends of communicators, groups, errors. And what tests ask.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "group.hpp"
#include "state.hpp"

using namespace hvd::doubles::nccl;
using Stage = Communicator::Stage;

namespace hvd::doubles::nccl {

Double::Double() {
  auto number = [](const char* name, int otherwise) {
    const char* text = std::getenv(name);
    return text != nullptr ? std::atoi(text) : otherwise;
  };
  version = number("HVD_NCCL_DOUBLE_VERSION", version);
  looks = number("HVD_NCCL_DOUBLE_LOOKS", looks);
  const int slow_rank = number("HVD_NCCL_DOUBLE_SLOW", -1);
  is_slow = slow_rank >= 0 && slow_rank == number("HOROVOD_RANK", -2);
  if (const char* text = std::getenv("HVD_NCCL_DOUBLE_HANG")) {
    hangs[HVD_NCCL_DOUBLE_INIT] = std::strcmp(text, "init") == 0;
    hangs[HVD_NCCL_DOUBLE_LAUNCH] = std::strcmp(text, "launch") == 0;
    hangs[HVD_NCCL_DOUBLE_ABORT] = std::strcmp(text, "abort") == 0;
  }
  if (const char* text = std::getenv("HVD_NCCL_DOUBLE_REFUSE")) {
    char name[64] = "";
    int code = 0, calls_before = 0;
    if (std::sscanf(text, "%63[^=]=%d@%d", name, &code, &calls_before) >= 2)
      refusals[name] = {static_cast<Code>(code), calls_before};
  }
  std::atexit([] {
    const auto& left = it().findings;
    for (const std::string& finding : left) std::fprintf(stderr, "the double of NCCL has found: %s\n", finding.c_str());
    if (!left.empty()) ::_exit(67);
  });
}

Double& Double::it() {
  static auto* const it = new Double;
  return *it;
}

Code Double::refused(const std::string& name) {
  std::lock_guard lock(mutex);
  const auto found = refusals.find(name);
  if (found == refusals.end() || found->second.calls-- > 0) return Code::success;
  const Code code = found->second.code;
  refusals.erase(found);
  last_error = "the test has asked for it";
  return code;
}

Code Double::begin(const char* entry_point) {
  {
    std::lock_guard lock(mutex);
    ++calls[entry_point];
  }
  return refused(entry_point);
}

void Double::find(const std::string& text) {
  std::lock_guard lock(mutex);
  findings.push_back(text);
}

namespace {

Code map(Communicator& communicator) {
  const int file = ::open(communicator.id.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const auto size = static_cast<std::size_t>(communicator.size);
  communicator.bytes = 4096 + size * size * sizeof(Mailbox);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(communicator.bytes)) != 0) return Code::system_error;
  void* memory = ::mmap(nullptr, communicator.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) return Code::system_error;
  communicator.meeting = static_cast<Meeting*>(memory);
  communicator.boxes = reinterpret_cast<Mailbox*>(static_cast<std::byte*>(memory) + 4096);
  if (++communicator.meeting->arrived == communicator.size) ::unlink(communicator.id.c_str());
  return Code::success;
}

// Does what is due at this look. Returns what NCCL would say.
Code look(Communicator& communicator) {
  if (communicator.fate->error != Code::success) return communicator.fate->error;
  if (communicator.stage == Stage::idle) return Code::success;
  if (communicator.never_ends || communicator.looks_left-- > 0) return Code::in_progress;
  if (communicator.stage == Stage::starts && communicator.meeting->arrived < communicator.size)
    return Code::in_progress;
  if (communicator.stage == Stage::launches) {
    if (communicator.late != Code::success) communicator.fate->error = communicator.late;
    else
      communicator.fate->error = submit(communicator, std::exchange(communicator.to_launch, {}), communicator.stream);
  }
  communicator.stage = Stage::idle;
  return communicator.fate->error;
}

thread_local int depth = 0;
struct Queued {
  Communicator* communicator;
  Call call;
  void* stream;
};
thread_local std::vector<Queued> queued;

Code launch_group() {
  Code result = Code::success;
  while (!queued.empty()) {
    Communicator& communicator = *queued.front().communicator;
    void* const stream = queued.front().stream;
    std::vector<Call> calls;
    std::erase_if(queued, [&](Queued& it) {
      if (it.communicator != &communicator || it.stream != stream) return false;
      calls.push_back(std::move(it.call));
      return true;
    });
    // Messages of one group travel together.
    std::vector<Call> joined;
    for (Call& call : calls) {
      if (call.what != "messages" || joined.empty() || joined.back().what != "messages") {
        joined.push_back(std::move(call));
        continue;
      }
      Call& into = joined.back();
      for (auto& message : call.messages) into.messages.push_back(message);
      for (auto& range : call.reads) into.reads.push_back(range);
      for (auto& range : call.writes) into.writes.push_back(range);
    }
    // Messages do not count: a rank that has none to send or get makes no call.
    ++(joined.front().what == "messages" ? communicator.groups_of_messages : communicator.calls);
    if (communicator.is_blocking) {
      result = submit(communicator, std::move(joined), stream);
      continue;
    }
    communicator.to_launch = std::move(joined);
    communicator.stream = stream;
    communicator.stage = Stage::launches;
    communicator.looks_left = Double::it().looks;
    communicator.never_ends = Double::it().hangs[HVD_NCCL_DOUBLE_LAUNCH];
    communicator.late = Double::it().refused("late");
    result = Code::in_progress;
  }
  return result;
}

void give_back(Communicator* communicator) {
  ::unlink(communicator->id.c_str());  // if not all ranks have come
  communicator->fate->is_aborted = true;
  --Double::it().communicators;
  // The mailboxes stay: queued work may look at them, and so may peers.
}

}  // namespace

Code add_to_group(Communicator* communicator, Call call, void* stream) {
  if (communicator->fate->error != Code::success) return communicator->fate->error;
  if (communicator->stage != Stage::idle) {
    Double::it().find("a call over a communicator whose last call was still in progress: " + call.what);
    return Code::invalid_usage;
  }
  // Zero elements are no call.
  if (call.messages.empty() && !call.before && !call.after) return Code::success;
  if (call.what != "messages") call.what = std::to_string(communicator->calls + 1) + ": " + call.what;
  queued.push_back({communicator, std::move(call), stream});
  return depth == 0 ? launch_group() : Code::success;
}

}  // namespace hvd::doubles::nccl

HVD_EXPORT Code ncclGetVersion(int* version) {
  HVD_BEGIN();
  *version = Double::it().version;
  return Code::success;
}
HVD_EXPORT const char* ncclGetErrorString(Code code) {
  constexpr const char* texts[] = {"no error",
                                   "unhandled cuda error",
                                   "unhandled system error",
                                   "internal error",
                                   "invalid argument",
                                   "invalid usage",
                                   "remote process exited or there was a network error",
                                   "NCCL operation in progress",
                                   "NCCL timeout"};
  const auto index = static_cast<std::size_t>(code);
  return index < std::size(texts) ? texts[index] : "unknown result code";
}
HVD_EXPORT const char* ncclGetLastError(Communicator*) {
  return Double::it().last_error.c_str();
}

HVD_EXPORT Code ncclGetUniqueId(UniqueId* id) {
  HVD_BEGIN();
  static std::atomic<int> count{0};
  std::memset(id->bytes, 0, sizeof id->bytes);
  // Tests beside this one look in /dev/shm for what hvd, horovod or pmix have left: the name has none of the words.
  // The time is there because a killed job may have left the file of a process whose number is used again.
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  std::snprintf(id->bytes, sizeof id->bytes, "/dev/shm/nccl-double-%d-%d-%lld", ::getpid(), count++,
                static_cast<long long>(now));
  return Code::success;
}
namespace {
using hvd::nccl::CommunicatorConfig;
Code start(Communicator** made, int size, const UniqueId& id, int rank, CommunicatorConfig* config) {
  if (config != nullptr && static_cast<int>(config->version) > Double::it().version)
    Double::it().find("a configuration of a communicator with members that this version does not know");
  if (config != nullptr && config->size >= sizeof *config && config->nvls_host_mode == INT_MAX)
    ++Double::it().without_nvls;
  if (size < 1 || rank < 0 || rank >= size || (config != nullptr && config->magic != 0xcafebeef))
    return Code::invalid_argument;
  auto* communicator = new Communicator;
  communicator->rank = rank;
  communicator->size = size;
  communicator->id = id.bytes;
  communicator->is_blocking = config == nullptr || config->blocking != 0;
  communicator->looks_left = Double::it().looks;
  communicator->never_ends = Double::it().hangs[HVD_NCCL_DOUBLE_INIT];
  if (const Code code = map(*communicator); code != Code::success) return code;
  ++Double::it().communicators;
  *made = communicator;
  if (!communicator->is_blocking) return Code::in_progress;
  while (look(*communicator) == Code::in_progress) ::usleep(50);
  return Code::success;
}
}  // namespace
HVD_EXPORT Code ncclCommInitRankConfig(Communicator** made, int size, UniqueId id, int rank,
                                       CommunicatorConfig* config) {
  HVD_BEGIN();
  return start(made, size, id, rank, config);
}
// The ranks meet by all ids, so that one that differs is noticed.
HVD_EXPORT Code ncclCommInitRankScalable(Communicator** made, int size, int rank, int id_count, UniqueId* ids,
                                         CommunicatorConfig* config) {
  HVD_BEGIN();
  if (id_count < 1 || id_count > size) return Code::invalid_argument;
  UniqueId all = ids[0];
  for (int i = 1; i < id_count; ++i)
    std::strncat(all.bytes, std::strrchr(ids[i].bytes, '-'), sizeof all.bytes - std::strlen(all.bytes) - 1);
  return start(made, size, all, rank, config);
}
HVD_EXPORT Code ncclCommInitRank(Communicator** made, int size, UniqueId id, int rank) {
  return ncclCommInitRankConfig(made, size, id, rank, nullptr);
}
HVD_EXPORT Code ncclCommGetAsyncError(Communicator* communicator, Code* code) {
  HVD_BEGIN();
  *code = look(*communicator);
  return Code::success;
}
HVD_EXPORT Code ncclCommCount(Communicator* communicator, int* size) {
  HVD_BEGIN();
  *size = communicator->size;
  return Code::success;
}
HVD_EXPORT Code ncclCommUserRank(Communicator* communicator, int* rank) {
  HVD_BEGIN();
  *rank = communicator->rank;
  return Code::success;
}
// Waits until all ranks do it.
HVD_EXPORT Code ncclCommFinalize(Communicator* communicator) {
  HVD_BEGIN();
  if (communicator->stage != Stage::idle) return Code::invalid_usage;
  ++communicator->meeting->left;
  for (int i = 0; i < 20'000 && communicator->meeting->left < communicator->size; ++i) ::usleep(500);
  return communicator->meeting->left < communicator->size ? Code::internal_error : Code::success;
}
HVD_EXPORT Code ncclCommDestroy(Communicator* communicator) {
  HVD_BEGIN();
  give_back(communicator);
  delete communicator;
  return Code::success;
}
HVD_EXPORT Code ncclCommAbort(Communicator* communicator) {
  HVD_BEGIN();
  while (Double::it().hangs[HVD_NCCL_DOUBLE_ABORT]) ::usleep(1000);
  give_back(communicator);
  delete communicator;
  return Code::success;
}
HVD_EXPORT Code ncclGroupStart() {
  HVD_BEGIN();
  ++depth;
  return Code::success;
}
HVD_EXPORT Code ncclGroupEnd() {
  HVD_BEGIN();
  if (depth == 0) return Code::invalid_usage;
  return --depth == 0 ? launch_group() : Code::success;
}

// ---- what tests ask

extern "C" {
__attribute__((visibility("default"))) size_t hvd_nccl_double_take_findings(void (*each)(void*, const char*),
                                                                            void* context) {
  std::vector<std::string> taken;
  {
    std::lock_guard lock(Double::it().mutex);
    taken = std::exchange(Double::it().findings, {});
  }
  for (const std::string& finding : taken)
    if (each != nullptr) each(context, finding.c_str());
  return taken.size();
}
__attribute__((visibility("default"))) size_t hvd_nccl_double_calls(const char* entry_point) {
  std::lock_guard lock(Double::it().mutex);
  return Double::it().calls[entry_point];
}
__attribute__((visibility("default"))) void hvd_nccl_double_set_version(int version) {
  Double::it().version = version;
}
__attribute__((visibility("default"))) size_t hvd_nccl_double_communicators(void) {
  return Double::it().communicators;
}
__attribute__((visibility("default"))) size_t hvd_nccl_double_without_nvls(void) {
  return Double::it().without_nvls;
}
__attribute__((visibility("default"))) void hvd_nccl_double_refuse(const char* entry_point, int code, int calls) {
  std::lock_guard lock(Double::it().mutex);
  Double::it().refusals[entry_point] = {static_cast<Code>(code), calls};
}
__attribute__((visibility("default"))) void hvd_nccl_double_hang(int call, int is_hanging) {
  Double::it().hangs[call] = is_hanging != 0;
}
}
