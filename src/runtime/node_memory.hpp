#pragma once
// Memory that all ranks of a node map: for the board, and for tensors that are reduced in place.
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/deadline.hpp"
#include "base/result.hpp"
#include "base/settings/config.hpp"
#include "base/world.hpp"
#include "connections/node_peers.hpp"
#include "connections/thread_hub.hpp"
#include "topology/layout.hpp"
#include "transport/shm/regions.hpp"

namespace hvd::runtime {

class NodeMemory {
 public:
  struct Parts {
    const World& world;
    const Config& config;
    const topology::Layout& layout;
    connections::NodePeers* peers;    // null for a single rank, and for ranks that are threads
    connections::ThreadHub* threads;  // null unless the ranks are threads
    // Returns why the runtime has ended; null while it runs, and before.
    std::function<std::shared_ptr<const Error>()> ended;
    // As Runtime::at_one_point().
    std::function<Status(const std::string& name, const Status& mine, std::function<void()> action)> at_one_point;
  };
  explicit NodeMemory(Parts parts);

  // Returns memory of this many bytes that all ranks of this node map. The name must be used only once. Collective over
  // the node.
  Result<std::shared_ptr<void>> map_together(const std::string& name, std::size_t bytes, Deadline deadline);

  // Provide memory for tensors, for Runtime::allocate_shared(), free_shared() and hold_shared().
  Result<void*> allocate(std::size_t bytes);
  Status free(void* memory);
  std::shared_ptr<void> hold(void* memory);
  // The same memory, as the transports see it.
  std::shared_ptr<transport::shm::SharedRegions> regions() const { return regions_; }

  // At the end: no transport uses the regions any more.
  void drop_regions() { regions_.reset(); }
  void leave(bool in_order);

 private:
  struct Shared {
    std::shared_ptr<void> memory;  // the memory of all ranks of this node
    std::size_t part_bytes;
  };

  const World& world_;
  const Config& config_;
  const topology::Layout& layout_;
  connections::NodePeers* peers_;
  connections::ThreadHub* threads_;
  const std::function<std::shared_ptr<const Error>()> ended_;
  const std::function<Status(const std::string&, const Status&, std::function<void()>)> at_one_point_;
  std::shared_ptr<transport::shm::SharedRegions> regions_ = std::make_shared<transport::shm::SharedRegions>();
  std::mutex calls_mutex_;          // allows one call of allocate() or free() at a time, with all that it waits for
  int calls_ = 0;                   // a number for the names of these operations; equal on all ranks
  std::mutex mutex_;                // guards what follows. Nobody waits for the engine while it is locked
  std::map<void*, Shared> shared_;  // by the address of this rank's part
};

}  // namespace hvd::runtime
