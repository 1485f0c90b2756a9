#include "devices/cuda/pool.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

namespace hvd::devices::cuda {

namespace {

// A program that has no memory left ends, so it is better to wait for what is about to be given back.
constexpr std::chrono::seconds patience_without_memory{1};

// Steps of a quarter of a power of two, so that memory is often used again.
std::size_t size_for(std::size_t bytes, Where where) {
  const std::size_t least = where == Where::on_device ? 512 : 4096;
  const std::size_t needed = std::max(bytes, least);
  const std::size_t step = std::max(std::bit_floor(needed) / 4, least);
  return (needed + step - 1) / step * step;
}

}  // namespace

Pool::Pool(std::shared_ptr<const hvd::cuda::Context> context, std::shared_ptr<Health> health,
           std::shared_ptr<Events> events, std::weak_ptr<Watcher> watcher, int memory_node)
    : context_(std::move(context)),
      health_(std::move(health)),
      events_(std::move(events)),
      memory_node_(memory_node),
      watcher_(std::move(watcher)) {}

// The driver waits for the device before it takes memory back. A device that has failed may never answer, and the
// process ends soon.
Pool::~Pool() {
  if (!health_->has_failed()) return;
  for (auto& [kind, blocks] : free_)
    for (auto& block : blocks) static_cast<void>(block.release());
  for (auto& block : unordered_) static_cast<void>(block.release());
}

void* Pool::data_of(const Block& block) {
  return block.where == Where::on_device ? reinterpret_cast<void*>(block.on_device.get()) : block.on_host.get();
}

Result<Memory> Pool::allocate(std::size_t bytes, Where where, Stream user) {
  if (health_->has_failed()) return health_->failure();
  const std::size_t size = size_for(bytes, where);
  try_again_with_the_unordered();
  auto of_user = user ? events_->user_of(user) : nullptr;
  std::unique_ptr<Block> block = take_free(size, where, of_user.get());
  if (block == nullptr) {
    const hvd::cuda::Context::Use use(*context_);
    auto made = make(size, where);
    const Deadline deadline = Deadline::after(patience_without_memory);
    for (Naps naps; !made && made.error().code == ErrorCode::out_of_memory; naps.take()) {
      const bool may_get_more = give_free_blocks_to_the_driver() && !deadline.passed();
      made = make(size, where);
      if (!may_get_more) break;
    }
    if (!made) return made.error();
    block = std::move(*made);
  }
  block->user = std::move(of_user);
  block->pool = shared_from_this();
  void* const data = data_of(*block);
  return Memory(data, block.release(), [](void* owner) {
    std::unique_ptr<Block> mine(static_cast<Block*>(owner));
    const std::shared_ptr<Pool> pool = std::exchange(mine->pool, nullptr);
    pool->give_back(std::move(mine));
  });
}

// On the same stream the next user's work follows the last one's. The host, however, uses its memory at once.
std::unique_ptr<Pool::Block> Pool::take_free(std::size_t size, Where where, const Events::User* user) {
  constexpr std::size_t most_looks = 8;
  std::lock_guard lock(mutex_);
  Blocks& blocks = free_[{where, size}];
  for (std::size_t i = 0; i < std::min(most_looks, blocks.size()); ++i) {
    const Events::User* last = blocks[i]->user.get();
    const bool follows =
        where == Where::on_device && user != nullptr && last != nullptr && events_->are_same(*last, *user);
    if (!follows && !events_->has_come(blocks[i]->free_at)) continue;
    std::unique_ptr<Block> block = std::move(blocks[i]);
    blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
    return block;
  }
  return nullptr;
}

Result<std::unique_ptr<Pool::Block>> Pool::make(std::size_t size, Where where) {
  auto block = std::make_unique<Block>();
  block->size = size;
  block->where = where;
  if (where == Where::on_device) {
    auto memory = hvd::cuda::make_device_memory(context_, size);
    if (!memory) return memory.error();
    block->on_device = std::move(*memory);
  } else {
    auto memory = hvd::cuda::make_page_locked(context_, size, memory_node_);
    if (!memory) return memory.error();
    block->on_host = std::move(*memory);
    std::lock_guard lock(mutex_);
    on_host_.emplace(block->on_host.get(), size);
  }
  return block;
}

bool Pool::is_on_host(const Move& move) {
  const auto is_within = [this](const void* address) {
    auto after = on_host_.upper_bound(address);
    if (after == on_host_.begin()) return false;
    const auto& [begin, size] = *std::prev(after);
    return static_cast<const std::byte*>(address) < static_cast<const std::byte*>(begin) + size;
  };
  std::lock_guard lock(mutex_);
  return is_within(move.from) || is_within(move.to);
}

void Pool::give_back(std::unique_ptr<Block> block) {
  if (hvd::cuda::is_forked() || health_->has_failed()) {
    static_cast<void>(block.release());
    return;
  }
  block->free_at = Event{};
  bool is_ordered = true;
  if (block->user != nullptr) {
    auto end = events_->record(*block->user);
    if (end) block->free_at = *end;
    is_ordered = end.has_value();
    if (const auto watcher = watcher_.lock(); watcher != nullptr && events_->is_of_program(block->free_at))
      static_cast<void>(watcher->watch(block->free_at, nullptr));
  }
  std::lock_guard lock(mutex_);
  auto& list = is_ordered ? free_[{block->where, block->size}] : unordered_;
  list.push_back(std::move(block));
}

void Pool::try_again_with_the_unordered() {
  Blocks blocks;
  {
    std::lock_guard lock(mutex_);
    blocks.swap(unordered_);
  }
  for (auto& block : blocks) give_back(std::move(block));
}

// Returns true if there are others, which streams still use.
bool Pool::give_free_blocks_to_the_driver() {
  Blocks blocks;
  bool are_others = false;
  std::lock_guard lock(mutex_);
  for (auto& [kind, of_kind] : free_) {
    for (auto& block : of_kind)
      if (events_->has_come(block->free_at) || events_->ask_driver(block->free_at) == hvd::cuda::Code::success)
        blocks.push_back(std::move(block));
    std::erase(of_kind, nullptr);
    are_others |= !of_kind.empty();
  }
  for (const auto& block : blocks) on_host_.erase(data_of(*block));
  return are_others;
}

}  // namespace hvd::devices::cuda
