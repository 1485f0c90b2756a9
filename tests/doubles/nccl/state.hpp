#pragma once
// What the entry points of the double share.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "doubles/nccl/control.h"
#include "native/nccl/library.hpp"

namespace hvd::doubles::nccl {

using hvd::nccl::Code;
using hvd::nccl::Operation;
using hvd::nccl::Type;
using hvd::nccl::UniqueId;

// A place for one chunk of a message from one rank to another, in memory that they share.
struct Mailbox {
  std::atomic<std::uint32_t> is_full;
  std::uint32_t bytes;
  std::uint64_t of;  // the length of the whole message
  char what[96];     // what the sender has called
  std::byte data[32 << 10];
};
struct Meeting {
  std::atomic<std::int32_t> arrived, left;
};

// A message of a piece of work, to or from a peer.
struct Message {
  bool is_sent = false;
  int peer = 0;
  std::byte* data = nullptr;  // an address of the device, or memory of the work
  std::size_t bytes = 0;
  bool is_on_device = false;
  std::size_t done = 0;
};

// One call: its messages travel, then after() is called. `before` is called first.
struct Call {
  std::string what;
  std::vector<Message> messages = {};
  std::function<void()> before = {}, after = {};
  std::vector<std::pair<const void*, std::size_t>> reads = {}, writes = {};
  bool has_begun = false;
};

}  // namespace hvd::doubles::nccl

namespace hvd::nccl {
struct CommunicatorOfNccl {
  using Call = doubles::nccl::Call;
  int rank = 0, size = 0;
  std::string id = {};
  bool is_blocking = false;
  std::size_t bytes = 0;
  doubles::nccl::Meeting* meeting = nullptr;
  doubles::nccl::Mailbox* boxes = nullptr;  // [from * size + to]
  std::uint64_t calls = 0, groups_of_messages = 0;

  // What is in progress: the start, or a launch that happens after some looks.
  enum class Stage { starts, launches, idle } stage = Stage::starts;
  int looks_left = 0;
  bool never_ends = false;
  std::vector<Call> to_launch = {};
  void* stream = nullptr;
  Code late = Code::success;

  // Shared with the work that is queued.
  struct Fate {
    std::atomic<bool> is_aborted{false};
    std::atomic<Code> error{Code::success};
  };
  std::shared_ptr<Fate> fate = std::make_shared<Fate>();

  doubles::nccl::Mailbox& box(int from, int to) const { return boxes[from * size + to]; }
};
}  // namespace hvd::nccl

namespace hvd::doubles::nccl {

using Communicator = hvd::nccl::CommunicatorOfNccl;

class Double {
 public:
  static Double& it();
  // What every entry point asks first.
  Code begin(const char* entry_point);
  Code refused(const std::string& name);
  void find(const std::string& text);

  std::mutex mutex;
  std::vector<std::string> findings;
  std::map<std::string, std::size_t> calls;
  struct Refusal {
    Code code;
    int calls;
  };
  std::map<std::string, Refusal> refusals;
  std::atomic<bool> hangs[3] = {};
  std::atomic<std::size_t> communicators{0}, without_nvls{0};
  int version = 22809, looks = 3;
  bool is_slow = false;
  std::string last_error;

 private:
  Double();
};

// Queues the calls as one piece of work.
Code submit(Communicator& communicator, std::vector<Call> calls, void* stream);

}  // namespace hvd::doubles::nccl

#define HVD_EXPORT extern "C" __attribute__((visibility("default")))
#define HVD_BEGIN()                                                                                               \
  if (const auto code_ = ::hvd::doubles::nccl::Double::it().begin(__func__); code_ != ::hvd::nccl::Code::success) \
  return code_
