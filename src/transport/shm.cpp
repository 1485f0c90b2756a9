// Shared memory between the ranks of a node. The ranks are processes (memfd over connections::NodePeers) or threads
// (connections::ThreadHub).
//
// How a link is made:
//  1. Seat 0 makes one shared area. All seats can compute its size. Seat 0 offers the area to the others under the
//     link's name.
//  2. The others take the area when the offer has arrived, and map it. The area contains only zeros, which is the state
//     in which nothing has happened yet.
//  3. The link is made when all seats have attached. So a rank that finishes early does not remove the memory, and if a
//     rank cannot map the memory, the start fails and not the first collective.
//  4. If seat 0 cannot make the area, it sends the reason instead, under the same name.
#include <optional>
#include <string>
#include <vector>

#include "connections/node_peers.hpp"
#include "connections/thread_hub.hpp"
#include "native/posix/memory/shared_memory.hpp"
#include "transport/shm/link.hpp"
#include "transport/shm/shared_area.hpp"
#include "transport/transport.hpp"

namespace hvd::transport {
namespace {

class ShmConnecting final : public Connecting {
 public:
  ShmConnecting(const Surroundings& surroundings, const Group& group, std::string_view name, Exchange& exchange)
      : surroundings_(surroundings),
        group_(group),
        name_("shm/" + std::string(name)),
        exchange_(exchange),
        shape_(shm::shape_for(group.size(), *surroundings.config)) {}

  Progress step() override {
    if (failure_) return Progress::failed;
    if (state_ == nullptr) {
      auto memory = surroundings_.ask<connections::ThreadHub>() != nullptr ? share_memory()
                    : group_.me.value == 0                                 ? make_memory()
                                                                           : take_memory();
      if (!memory) {
        failure_ = std::move(memory.error());
        return Progress::failed;
      }
      if (*memory == nullptr) return Progress::pending;
      state_ = std::make_unique<shm::LinkState>(group_, std::move(*memory), shape_, flag_post(),
                                                surroundings_.ask<connections::ThreadHub>());
      if (is_whole_node()) state_->regions = surroundings_.ask<shm::SharedRegions>();
      state_->post.post(state_->area.seat(state_->me).flags->attached.value, 1);
    }
    state_->notice_dead_threads();
    if (state_->aborted) {
      failure_ = state_->aborted;
      return Progress::failed;
    }
    return state_->missing(&shm::SeatFlags::attached, 1, 0) < state_->size ? Progress::pending : Progress::done;
  }
  std::unique_ptr<Link> take() override { return shm::make_link(std::move(state_)); }
  const Error& failure() const override { return *failure_; }

 private:
  Result<std::shared_ptr<void>> share_memory() {
    return surroundings_.ask<connections::ThreadHub>()->share_memory(name_, shm::bytes_needed(shape_));
  }

  Result<std::shared_ptr<void>> make_memory() {
    auto made = posix::SharedMemory::create("horovod/" + name_, shm::bytes_needed(shape_));
    Status offered;
    if (made && group_.size() > 1)
      offered = surroundings_.ask<connections::NodePeers>()->offer(group_, name_, made->descriptor());
    if (made && offered) {
      made->give_up_descriptor();
      return keep(std::move(*made));
    }
    Error error = made ? std::move(offered.error()) : std::move(made.error());
    auto told = exchange_.put(name_ + "/failed", as_bytes(error.message));
    if (!told) error.message += "; the other ranks could not be told: " + told.error().message;
    return error;
  }

  Result<std::shared_ptr<void>> take_memory() {
    if (auto descriptor = surroundings_.ask<connections::NodePeers>()->take(name_)) {
      auto mapped = posix::SharedMemory::map(*descriptor, shm::bytes_needed(shape_));
      if (!mapped) return std::move(mapped.error());
      return keep(std::move(*mapped));
    }
    Buffer reason;
    auto has_failed = exchange_.get(group_.rank_at(Seat{0}), name_ + "/failed", reason);
    if (!has_failed) return std::move(has_failed.error());
    if (!*has_failed) return std::shared_ptr<void>();
    return Error(ErrorCode::out_of_memory, "rank " + std::to_string(group_.rank_at(Seat{0}).value) +
                                               " could not make shared memory: " + to_string(reason));
  }

  static std::shared_ptr<void> keep(posix::SharedMemory memory) {
    auto owner = std::make_shared<posix::SharedMemory>(std::move(memory));
    void* data = owner->data();
    return {std::move(owner), data};
  }

  shm::FlagPost flag_post() const {
    std::vector<posix::WaitWord*> words;
    for (int seat = 0; seat < group_.size(); ++seat) {
      bool is_known = seat != group_.me.value && surroundings_.wake_of != nullptr;
      words.push_back(is_known ? surroundings_.wake_of(group_.rank_at(Seat{seat})) : nullptr);
    }
    return {std::move(words), surroundings_.asymmetric_wake};
  }

  // True if the group has all ranks of the node. Regions have a part for each seat of the node, and a smaller group has
  // other seat numbers.
  bool is_whole_node() const {
    const World& world = *surroundings_.world;
    std::vector<Rank> node;
    for (int rank = 0; rank < world.size(); ++rank) {
      if (world.member(Rank{rank}).node == world.me().node) node.push_back(Rank{rank});
    }
    return node == group_.ranks;
  }

  const Surroundings& surroundings_;
  const Group group_;
  const std::string name_;
  Exchange& exchange_;
  const shm::Shape shape_;
  std::unique_ptr<shm::LinkState> state_;  // set when the memory is mapped
  std::optional<Error> failure_;
};

class Shm final : public Transport {
 public:
  explicit Shm(const Surroundings& surroundings) : surroundings_(surroundings) {}

  const char* name() const override { return "shm"; }

  bool reaches(const Group& group, DeviceKind kind) const override {
    if (kind != DeviceKind::host || !group.has_me()) return false;
    if (group.size() == 1) return true;
    bool can_share = surroundings_.ask<connections::ThreadHub>() != nullptr ||
                     surroundings_.ask<connections::NodePeers>() != nullptr;
    if (!can_share || surroundings_.world == nullptr) return false;
    const World& world = *surroundings_.world;
    for (Rank rank : group.ranks) {
      if (world.member(rank).node != world.me().node) return false;
    }
    return true;
  }

  Result<std::unique_ptr<Connecting>> connect(const Group& group, std::string_view name, Exchange& exchange) override {
    if (!reaches(group, DeviceKind::host)) {
      return Error(ErrorCode::unsupported,
                   "shared memory reaches only ranks of one node; group \"" + std::string(name) + "\" has others");
    }
    return std::unique_ptr<Connecting>(std::make_unique<ShmConnecting>(surroundings_, group, name, exchange));
  }

 private:
  const Surroundings surroundings_;
};

}  // namespace

std::unique_ptr<Transport> make_shm(const Surroundings& surroundings) {
  return std::make_unique<Shm>(surroundings);
}

}  // namespace hvd::transport
