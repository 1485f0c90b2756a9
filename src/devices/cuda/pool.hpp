#pragma once
// Memory of a device, and page-locked memory of the host, that is used again in the order of a stream. Allocating from
// the driver takes long, and may wait for the device, so in steady state nothing is allocated.
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "devices/cuda/events.hpp"
#include "devices/cuda/watcher.hpp"
#include "devices/device.hpp"

namespace hvd::devices::cuda {

class Pool : public std::enable_shared_from_this<Pool> {
 public:
  // Page-locked memory comes from this NUMA node (hvd::cuda::make_page_locked()).
  Pool(std::shared_ptr<const hvd::cuda::Context> context, std::shared_ptr<Health> health,
       std::shared_ptr<Events> events, std::weak_ptr<Watcher> watcher, int memory_node);
  // All memory has been given back, for each piece of it has an owner of the pool.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // See Device::allocate().
  Result<Memory> allocate(std::size_t bytes, Where where, Stream user);
  // Whether one of the two sides of a move is in page-locked memory of this pool.
  bool is_on_host(const Move& move);

 private:
  struct Block {
    std::shared_ptr<Pool> pool{};  // while it has a user
    hvd::cuda::DeviceMemory on_device{};
    hvd::cuda::PageLocked on_host{};
    std::size_t size = 0;
    Where where = Where::on_device;
    std::shared_ptr<Events::User> user{};
    Event free_at{};
  };
  using Blocks = std::deque<std::unique_ptr<Block>>;

  static void* data_of(const Block& block);
  std::unique_ptr<Block> take_free(std::size_t size, Where where, const Events::User* user);
  Result<std::unique_ptr<Block>> make(std::size_t size, Where where);
  void give_back(std::unique_ptr<Block> block);
  void try_again_with_the_unordered();
  bool give_free_blocks_to_the_driver();

  const std::shared_ptr<const hvd::cuda::Context> context_;
  const std::shared_ptr<Health> health_;
  const std::shared_ptr<Events> events_;
  const int memory_node_;
  const std::weak_ptr<Watcher> watcher_;  // finds out when streams of the program are done with memory
  std::mutex mutex_;
  std::map<std::pair<Where, std::size_t>, Blocks> free_;  // by kind and size, what was given back first is first
  std::map<const void*, std::size_t> on_host_;            // all page-locked memory that the pool has from the driver
  Blocks unordered_;  // given back while nothing could be recorded on the user's stream, which was being captured
};

}  // namespace hvd::devices::cuda
