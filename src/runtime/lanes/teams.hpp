#pragma once
// The teams of a process set for one kind of memory: all its ranks, its ranks on this node, and this rank's rail, with
// the links that the transports offer. Links are made when they are first used; the world's links for host memory are
// made at the start.
//
// For tensors on devices there are such teams twice: over links from device to device, and over links of host memory.
// The former are made first, and the ranks tell each other which of them they have: only what all have is used. (What
// such a link uses of a device, it gets when the first task is planned.) Of the latter, transports tell whether they
// can be made, which is enough to compare costs. They are made when an algorithm that needs them is chosen, or at once
// if there is no link between all devices.
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithm.hpp"
#include "collectives/selection/selector.hpp"
#include "devices/of_rank/devices.hpp"
#include "runtime/agreement/log_exchange.hpp"
#include "runtime/operations/process_sets.hpp"
#include "topology/layout.hpp"
#include "transport/registry.hpp"
#include "transport/transport.hpp"

namespace hvd::runtime {

// The parts that all process sets of a rank share to make their teams.
class TeamMaker {
 public:
  // Fails if HOROVOD_ALGORITHM cannot be satisfied. `layout` is the world's. `others` are transports that are
  // preferred to those of the registry without a place in the order of preference.
  static Result<std::unique_ptr<TeamMaker>> make(const transport::Surroundings& surroundings,
                                                 const topology::Layout& layout,
                                                 std::span<const transport::Maker> others = {});

  const World& world() const { return *surroundings_.world; }
  topology::Layout layout_of(const ProcessSet& set) const {
    return set.id == global_process_set ? layout_ : topology::layout_of(world(), set.ranks);
  }
  const Config& config() const { return *surroundings_.config; }
  collectives::Selector& selector() const { return *selector_; }
  devices::Devices& devices() const { return *devices_; }
  posix::WaitWord* wake() const { return surroundings_.wake; }
  // Returns the preferred transport that carries this kind of memory between the ranks of the group; null if there is
  // none. With `regions`, tensors may be in memory that the ranks of a node share.
  transport::Transport* find(const Group& group, DeviceKind kind, bool regions) const;

 private:
  using Transports = std::vector<std::unique_ptr<transport::Transport>>;  // the transports in the order of preference
  explicit TeamMaker(const topology::Layout& layout) : layout_(layout) {}
  static Transports make_transports(const transport::Surroundings& surroundings,
                                    std::span<const transport::Maker> others);

  transport::Surroundings surroundings_;
  const topology::Layout& layout_;
  std::unique_ptr<collectives::Selector> selector_;
  std::shared_ptr<devices::Devices> devices_;
  // Shared regions are added and removed in the order of the world's batches. Other lanes do not follow that order, so
  // their transports do without regions.
  Transports with_regions_, without_regions_;
};

class Teams {
 public:
  // The rank must be a member of the set.
  Teams(const TeamMaker& maker, const ProcessSet& set, devices::Device& device, LogExchange::Send send);

  // Connects the links that are needed so far. Runs on the engine's thread, in the same order on all members. Never
  // blocks.
  Progress connect();
  // From now on connect() also makes links of host memory. All members ask for them at the same place of the log.
  void ask_for_links_of_host() { wants_links_of_host_ = true; }
  bool has_links_of_host() const { return has_links_of_host_; }
  int links() const;  // that were made
  const Error& failure() const { return *failure_; }
  // Names the link that is being made; empty if there is none.
  std::string describe_pending() const {
    if (!is_of_host() && !has_agreed_ && next_ == links_of_devices_) return " (which links of devices all ranks have)";
    return next_ < connections_.size() ? " (link '" + connections_[next_].name + "')" : "";
  }
  const Config& config() const { return maker_.config(); }
  // Takes a word of the links that was read in the log.
  void published(const PublishedRecord& record) { exchange_.published(record); }

  devices::Device& device() const { return device_; }
  posix::WaitWord* wake() const { return maker_.wake(); }
  // The team for tensors in this kind of memory. For host memory it is the host team.
  collectives::Team& all() { return is_of_host() ? host_ : all_; }
  collectives::Team& host() { return host_; }
  const collectives::Team& host() const { return host_; }
  // The chosen transports of the hops. Empty if no rank is to be reached there.
  std::string_view transport_inside() const { return transport_inside_; }
  std::string_view transport_between() const { return transport_between_; }
  // Returns the transport from device to device, or else that of the longest hop.
  std::string_view transport() const {
    if (!transport_of_devices_.empty()) return transport_of_devices_;
    return transport_between_.empty() ? transport_inside_ : transport_between_;
  }
  // Called before the engine sleeps. Arms all links (transport::Link::arm).
  void arm() noexcept;
  // True if some link cannot wake the engine (transport::Link::needs_polling).
  bool needs_polling() noexcept;
  // True if some link moves only while the engine looks (transport::Link::progresses_only_when_polled).
  bool progresses_only_when_polled() noexcept;
  void abort_links_of_host(const Error& reason) noexcept;
  // May hang in the library of the device. Any thread.
  void abort_links_of_devices(const Error& reason) noexcept;
  ProcessSetId set() const { return set_; }

 private:
  struct Connection {
    collectives::Team* team;
    std::string name;
    std::unique_ptr<transport::Connecting> connecting;
    std::unique_ptr<transport::Link> link;
  };
  bool is_of_host() const { return device_.kind() == DeviceKind::host; }
  bool is_of_devices(const collectives::Team& team) const {
    return &team == &all_ || &team == &device_node_ || &team == &device_rail_;
  }
  void add(collectives::Team& team, const std::string& name);
  transport::Transport* transport_for(const Connection& connection) const;
  bool can_do_without(const Connection& connection) const;
  void plan_teams_of_devices();
  void plan_teams_of_host();
  Progress connect_up_to(std::size_t end);
  Progress agree_on_device_links();
  Progress fail(Error error);
  Status note(const Connection& connection, std::string_view transport);
  void note_way_of_devices() const;
  std::string why_no_hierarchy() const;

  const TeamMaker& maker_;
  const ProcessSetId set_;
  devices::Device& device_;
  LogExchange exchange_;
  const topology::Layout layout_;
  collectives::Team host_, node_, rail_;
  // The teams for transfers from device to device, if a transport carries them.
  collectives::Team all_, device_node_, device_rail_;
  std::vector<Connection> connections_;
  std::size_t links_of_devices_ = 0;  // how many of the connections they are, the first ones
  // 1 for each of the latter two teams that has its link. What is left after the agreement, all ranks have.
  std::array<std::uint8_t, 2> device_links_{1, 1};
  bool has_told_ = false, has_agreed_ = false;
  std::int32_t words_read_ = 0;  // of how many ranks the words were read
  Buffer word_;
  bool wants_links_of_host_ = false, has_links_of_host_ = false;
  std::string_view transport_inside_, transport_between_, transport_of_devices_;
  std::size_t next_ = 0;  // index of the connection to be made next
  std::optional<Error> failure_;
};

}  // namespace hvd::runtime
