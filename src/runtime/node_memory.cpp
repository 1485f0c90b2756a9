#include "runtime/node_memory.hpp"

#include <cstddef>
#include <cstring>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "native/posix/memory/shared_memory.hpp"

namespace hvd::runtime {

namespace {

std::shared_ptr<void> private_memory(std::size_t bytes) {
  constexpr std::align_val_t alignment{64};
  void* memory = ::operator new(bytes, alignment);
  std::memset(memory, 0, bytes);
  return {memory, [](void* data) { ::operator delete(data, alignment); }};
}

}  // namespace

NodeMemory::NodeMemory(Parts parts)
    : world_(parts.world),
      config_(parts.config),
      layout_(parts.layout),
      peers_(parts.peers),
      threads_(parts.threads),
      ended_(std::move(parts.ended)),
      at_one_point_(std::move(parts.at_one_point)) {}

Result<std::shared_ptr<void>> NodeMemory::map_together(const std::string& name, std::size_t bytes, Deadline deadline) {
  const Group& node = layout_.node;
  if (threads_)
    return threads_->share_memory(name + "." + std::to_string(world_.epoch) + "." + std::to_string(layout_.my_node),
                                  bytes);
  if (node.size() == 1) return private_memory(bytes);
  auto owner = std::make_shared<posix::SharedMemory>();
  if (node.me == Seat{0}) {
    auto created = posix::SharedMemory::create(name, bytes);
    if (!created) return created.error();
    *owner = std::move(*created);
    HVD_RETURN_IF_ERROR(peers_->offer(node, name, owner->descriptor()));
    owner->give_up_descriptor();
  } else {
    std::optional<posix::FileDescriptor> descriptor;
    while (!(descriptor = peers_->take(name))) {
      if (auto reason = ended_()) return *reason;
      if (auto lost = peers_->first_lost())  // nobody else asks before the engine runs
        return Error(ErrorCode::peer_lost, describe(world_, *lost) +
                                               " ended before the links between the ranks were made. Look at that "
                                               "rank's own output for the cause");
      if (deadline.passed())
        return Error(ErrorCode::timeout,
                     describe(world_, Rank{0}) + " did not hand over the memory '" + name + "' in time");
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    auto mapped = posix::SharedMemory::map(*descriptor, bytes);
    if (!mapped) return mapped.error();
    *owner = std::move(*mapped);
  }
  return std::shared_ptr<void>(owner, owner->data());
}

Result<void*> NodeMemory::allocate(std::size_t bytes) {
  constexpr std::size_t page = 4096;
  std::size_t part = (bytes + page - 1) / page * page;
  std::lock_guard call(calls_mutex_);
  std::string name = "horovod.shared." + std::to_string(calls_);
  // A program may call this late, as before any collective, so this first wait has no limit. When all ranks are here,
  // mapping the memory takes only moments.
  HVD_RETURN_IF_ERROR(at_one_point_(name + ".begin", {}, [] {}));
  ++calls_;  // not if the start was refused: the others wait for this rank under this name
  auto deadline = start_deadline(config_);
  auto memory = map_together(name, part * static_cast<std::size_t>(layout_.node.size()), deadline);
  // A rank that could not map the memory takes part with its error, so that the others do not wait for it.
  HVD_RETURN_IF_ERROR(at_one_point_(name, memory ? Status() : memory.error(),
                                    [this, &memory, part] { regions_->add(*memory, part, layout_.node.me.value); }));
  void* mine = static_cast<std::byte*>(memory->get()) + part * static_cast<std::size_t>(layout_.node.me.value);
  std::lock_guard lock(mutex_);
  shared_.emplace(mine, Shared{std::move(*memory), part});
  return mine;
}

std::shared_ptr<void> NodeMemory::hold(void* memory) {
  std::lock_guard lock(mutex_);
  auto found = shared_.find(memory);
  return found == shared_.end() ? nullptr : found->second.memory;
}

// Makes held memory private to this process. Otherwise a process that was stopped in the middle of a batch could still
// write to this rank's part when it continues.
void NodeMemory::leave(bool in_order) {
  if (threads_ != nullptr || layout_.node.size() == 1 || in_order) return;
  for (auto& [mine, shared] : shared_)
    if (shared.memory.use_count() > 1) posix::make_private(mine, shared.part_bytes);
}

Status NodeMemory::free(void* memory) {
  std::lock_guard call(calls_mutex_);
  if (hold(memory) == nullptr)
    return Error(ErrorCode::invalid_argument, "hvd_shared_free: this memory did not come from hvd_shared_allocate");
  // After the end there is no schedule any more, and no rank reads the memory.
  if (ended_() == nullptr) {
    HVD_RETURN_IF_ERROR(
        at_one_point_("horovod.shared." + std::to_string(calls_), {}, [this, memory] { regions_->remove(memory); }));
    ++calls_;
  }
  std::lock_guard lock(mutex_);
  shared_.erase(memory);
  return {};
}

}  // namespace hvd::runtime
