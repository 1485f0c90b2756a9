// How calls travel between ranks: as work on a stream, through mailboxes.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>

#include "doubles/cuda/control.h"
#include "state.hpp"

namespace hvd::doubles::nccl {
namespace {

struct Work {
  Communicator view;  // the parts that do not change
  std::vector<Call> calls;
  std::size_t next = 0;
};

std::byte* bytes_of(const Message& message) {
  return message.is_on_device ? static_cast<std::byte*>(hvd_double_inner(message.data)) : message.data;
}

// Sends or receives a chunk. Returns true if it has.
bool advance(const Communicator& communicator, Call& call, Message& message) {
  Mailbox& box = message.is_sent ? communicator.box(communicator.rank, message.peer)
                                 : communicator.box(message.peer, communicator.rank);
  if ((box.is_full.load(std::memory_order_acquire) != 0) == message.is_sent) return false;
  if (message.is_sent) {
    box.bytes = static_cast<std::uint32_t>(std::min(sizeof box.data, message.bytes - message.done));
    box.of = message.bytes;
    std::snprintf(box.what, sizeof box.what, "%s", call.what.c_str());
    std::memcpy(box.data, bytes_of(message) + message.done, box.bytes);
  } else {
    if (box.of != message.bytes || call.what != box.what) {
      Double::it().find("rank " + std::to_string(communicator.rank) + " has called " + call.what + " and expects " +
                        std::to_string(message.bytes) + " bytes, rank " + std::to_string(message.peer) +
                        " has called " + box.what + " and sends " + std::to_string(box.of));
      communicator.fate->error = Code::invalid_usage;
      return false;
    }
    std::memcpy(bytes_of(message) + message.done, box.data, box.bytes);
  }
  if (Double::it().is_slow) ::usleep(20'000);
  message.done += box.bytes;
  box.is_full.store(message.is_sent ? 1 : 0, std::memory_order_release);
  hvd_double_has_news();
  return true;
}

// Messages between two ranks keep their order.
bool is_over(const Communicator& communicator, Call& call) {
  bool is_pending = false, has_moved = true;
  while (has_moved && communicator.fate->error == Code::success) {
    has_moved = is_pending = false;
    std::set<std::pair<int, bool>> taken;
    for (Message& message : call.messages) {
      if (message.done == message.bytes) continue;
      is_pending = true;
      if (taken.insert({message.peer, message.is_sent}).second)
        has_moved = advance(communicator, call, message) || has_moved;
    }
  }
  return !is_pending;
}

int run(void* context) {
  Work& work = *static_cast<Work*>(context);
  for (; work.next < work.calls.size(); ++work.next) {
    Call& call = work.calls[work.next];
    if (work.view.fate->is_aborted) return HVD_DOUBLE_ABORTED;
    if (!std::exchange(call.has_begun, true) && call.before) call.before();
    if (!is_over(work.view, call)) return HVD_DOUBLE_AGAIN;  // after an error, until it is aborted
    if (call.after) call.after();
  }
  return HVD_DOUBLE_DONE;
}

}  // namespace

Code submit(Communicator& communicator, std::vector<Call> calls, void* stream) {
  std::vector<hvd_double_range> reads, writes;
  for (const Call& call : calls) {
    for (const auto& [begin, bytes] : call.reads) reads.push_back({begin, bytes});
    for (const auto& [begin, bytes] : call.writes) writes.push_back({begin, bytes});
  }
  const std::string label = "NCCL's " + calls.front().what;
  const bool are_messages = calls.front().what == "messages";
  const std::string meeting =
      communicator.id + (are_messages ? " messages " + std::to_string(communicator.groups_of_messages)
                                      : " " + std::to_string(communicator.calls));
  auto* work = new Work{communicator, std::move(calls)};
  const int code = hvd_double_submit(
      stream, label.c_str(), meeting.c_str(), reads.data(), reads.size(), writes.data(), writes.size(), &run,
      [](void* it) { delete static_cast<Work*>(it); }, work);
  return code == 0 ? Code::success : Code::unhandled_cuda_error;
}

}  // namespace hvd::doubles::nccl
