#include "runtime/lanes/teams.hpp"

#include <algorithm>

#include "base/deadline.hpp"
#include "base/log.hpp"
#include "base/panic.hpp"
#include "base/settings/environment.hpp"
#include "base/transports.hpp"
#include "connections/mpi_peers.hpp"
#include "runtime/reports/network_report.hpp"
#include "transport/shm/regions.hpp"

namespace hvd::runtime {

namespace {

int preference_of(std::string_view name) {
  auto found = std::ranges::find(transports_by_preference, name, &TransportRow::name);
  return static_cast<int>(found - std::begin(transports_by_preference));
}

// Returns the name of a link. Names of links are equal on all members and are used only once.
std::string name_of_link(ProcessSetId set, DeviceKind kind, std::string name) {
  if (kind != DeviceKind::host) name = std::string(hvd::name_of(kind)) + " " + name;
  return set == global_process_set ? name : "set " + std::to_string(set.value) + " " + name;
}

}  // namespace

TeamMaker::Transports TeamMaker::make_transports(const transport::Surroundings& surroundings,
                                                 std::span<const transport::Maker> others) {
  Transports transports;
  for (const transport::Maker& maker : others) transports.push_back(maker.make(surroundings));
  for (const transport::Maker& maker : transport::registry()) transports.push_back(maker.make(surroundings));
  std::stable_sort(transports.begin(), transports.end(),
                   [](const auto& a, const auto& b) { return preference_of(a->name()) < preference_of(b->name()); });
  return transports;
}

Result<std::unique_ptr<TeamMaker>> TeamMaker::make(const transport::Surroundings& surroundings,
                                                   const topology::Layout& layout,
                                                   std::span<const transport::Maker> others) {
  auto selector = collectives::Selector::make(*surroundings.config);
  if (!selector) return selector.error();
  std::unique_ptr<TeamMaker> maker(new TeamMaker(layout));
  maker->selector_ = std::move(*selector);
  maker->surroundings_ = surroundings;
  maker->devices_ = surroundings.ask<devices::Devices>();
  maker->with_regions_ = make_transports(surroundings, others);
  transport::Surroundings without_regions = surroundings;
  without_regions.offer<transport::shm::SharedRegions>(nullptr);
  // These links are made while other links are in use. A thread would make the MPI communicator while the engine calls
  // MPI; an MPI for one thread at a time does not allow that.
  if (surroundings.config->mpi_threads_disable) without_regions.offer<connections::MpiPeers>(nullptr);
  maker->without_regions_ = make_transports(without_regions, others);
  return maker;
}

transport::Transport* TeamMaker::find(const Group& group, DeviceKind kind, bool regions) const {
  const Transports& transports = regions ? with_regions_ : without_regions_;
  auto able = std::find_if(transports.begin(), transports.end(),
                           [&](const auto& transport) { return transport->reaches(group, kind); });
  return able == transports.end() ? nullptr : able->get();
}

Teams::Teams(const TeamMaker& maker, const ProcessSet& set, devices::Device& device, LogExchange::Send send)
    : maker_(maker), set_(set.id), device_(device), exchange_(set.id, std::move(send)), layout_(maker.layout_of(set)) {
  if (!is_of_host()) plan_teams_of_devices();
  links_of_devices_ = connections_.size();
  plan_teams_of_host();
  wants_links_of_host_ = is_of_host();
}

void Teams::plan_teams_of_host() {
  host_.group = layout_.world;
  add(host_, "world");
  if (layout_.nodes == 1) return;
  host_.nodes = layout_.nodes;
  host_.rails = layout_.rails;
  host_.node_of = layout_.node_of;
  node_.group = layout_.node;
  host_.node = &node_;
  add(node_, "node " + std::to_string(layout_.my_node));
  if (!layout_.rail.has_me()) return;
  rail_.group = layout_.rail;
  host_.rail = &rail_;
  add(rail_, "rail " + std::to_string(layout_.node.me.value));
}

// Hierarchy needs nodes with equal numbers of ranks.
void Teams::plan_teams_of_devices() {
  all_.group = layout_.world;
  all_.device = &device_;
  all_.host = &host_;
  if (!maker_.config().deterministic)
    all_.clock = [] { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); };
  add(all_, "devices");
  if (layout_.nodes == 1) return;
  all_.nodes = layout_.nodes;
  all_.rails = layout_.rails;
  all_.node_of = layout_.node_of;
  if (!layout_.is_homogeneous()) return;
  device_node_.group = layout_.node;
  device_node_.device = &device_;
  add(device_node_, "devices of node " + std::to_string(layout_.my_node));
  if (!maker_.config().torus_allreduce) return;
  device_rail_.group = layout_.rail;
  device_rail_.device = &device_;
  add(device_rail_, "devices of rail " + std::to_string(layout_.node.me.value));
}

void Teams::add(collectives::Team& team, const std::string& name) {
  team.selector = &maker_.selector();
  connections_.push_back({&team, name_of_link(set_, device_.kind(), name), nullptr, nullptr});
  team.can_be_linked = !is_of_host() && !is_of_devices(team) && transport_for(connections_.back()) != nullptr;
}

transport::Transport* Teams::transport_for(const Connection& connection) const {
  const DeviceKind kind = is_of_devices(*connection.team) ? device_.kind() : DeviceKind::host;
  return maker_.find(connection.team->group, kind, set_ == global_process_set && is_of_host());
}

// True if the connection is optional: all its ranks can be reached over node and rail, or over the host's links.
bool Teams::can_do_without(const Connection& connection) const {
  return is_of_devices(*connection.team) || (connection.team == &host_ && host_.node != nullptr);
}

Progress Teams::connect() {
  if (Progress progress = connect_up_to(links_of_devices_); progress != Progress::done) return progress;
  if (Progress progress = agree_on_device_links(); progress != Progress::done) return progress;
  if (!is_of_host() && all_.size() > 1 && all_.link == nullptr) wants_links_of_host_ = true;
  if (!wants_links_of_host_) return Progress::done;
  if (Progress progress = connect_up_to(connections_.size()); progress != Progress::done) return progress;
  exchange_.end();
  has_links_of_host_ = true;
  if (host_.link == nullptr) host_.transport = transport_between_;
  return Progress::done;
}

Progress Teams::connect_up_to(std::size_t end) {
  for (; next_ < end; ++next_) {
    Connection& connection = connections_[next_];
    if (connection.team->size() == 1) continue;
    if (!connection.connecting) {
      transport::Transport* able = transport_for(connection);
      if (able == nullptr) {
        if (can_do_without(connection)) continue;
        return fail({ErrorCode::unsupported, "no transport reaches all ranks of the " + connection.name +
                                                 "; ranks on several machines need a network transport"});
      }
      if (auto status = note(connection, able->name()); !status) return fail(status.error());
      auto connecting = able->connect(connection.team->group, connection.name, exchange_);
      if (!connecting) return fail(connecting.error());
      connection.connecting = std::move(*connecting);
      connection.team->transport = able->name();
      log::debug("the link '" + connection.name + "' of " + std::to_string(connection.team->size()) +
                 " ranks is made over " + able->name());
    }
    Progress progress = connection.connecting->step();
    if (progress == Progress::failed) return fail(connection.connecting->failure());
    if (progress != Progress::done) return progress;
    connection.link = connection.connecting->take();
    connection.connecting.reset();
    if (connection.link == nullptr) {
      if (!can_do_without(connection)) panic("a transport has made no link for " + connection.name);
      if (all_.link == nullptr) transport_of_devices_ = {};
      connection.team->transport = {};
    }
    connection.team->link = connection.link.get();
  }
  return Progress::done;
}

// Whether a node has a link of devices, only its own ranks know. Hierarchy needs it on all nodes.
Progress Teams::agree_on_device_links() {
  if (has_agreed_ || is_of_host()) return Progress::done;
  if (device_node_.size() > 0) {
    const std::string key = name_of_link(set_, device_.kind(), "links of devices");
    if (!std::exchange(has_told_, true)) {
      device_links_ = {device_node_.size() == 1 || device_node_.link != nullptr, device_rail_.link != nullptr};
      if (auto told = exchange_.put(key, std::as_bytes(std::span(device_links_))); !told) return fail(told.error());
    }
    for (; words_read_ < all_.size(); ++words_read_) {
      auto is_there = exchange_.get(all_.group.rank_at(Seat{words_read_}), key, word_);
      if (!is_there) return fail(is_there.error());
      if (!*is_there) return Progress::pending;
      for (std::size_t i = 0; i < device_links_.size(); ++i)
        device_links_[i] = std::min(device_links_[i], std::to_integer<std::uint8_t>(word_[i]));
    }
    const auto [has_nodes, has_rails] = device_links_;
    if (has_nodes != 0) {
      all_.node = &device_node_;
      all_.rail = has_rails != 0 ? &device_rail_ : &rail_;
    }
  }
  has_agreed_ = true;
  if (all_.size() > 1) note_way_of_devices();
  return Progress::done;
}

int Teams::links() const {
  return static_cast<int>(std::ranges::count_if(connections_, [](const Connection& it) { return it.link != nullptr; }));
}

// Records the transport of the hop that the connection makes.
Status Teams::note(const Connection& connection, std::string_view transport) {
  bool is_between = host_.node != nullptr && connection.team != &node_ && connection.team != &device_node_;
  (is_of_devices(*connection.team) ? transport_of_devices_
   : is_between                    ? transport_between_
                                   : transport_inside_) = transport;
  if (!is_between || !maker_.config().require_fabric) return {};
  return require_fabric(transport, NetworkFacts::of_this_host(Environment::of_this_process()),
                        maker_.world().me().host);
}

// Logs how tensors on devices travel. Only the first rank of a set logs it.
void Teams::note_way_of_devices() const {
  if (all_.group.me != Seat{0}) return;
  const std::string whose = "the tensors in " + std::string(hvd::name_of(device_.kind())) + " memory of " +
                            (set_ == global_process_set ? "all ranks" : "process set " + std::to_string(set_.value));
  const bool has_links_in_nodes = all_.node != nullptr && all_.rails > 1;
  if (all_.link == nullptr)
    log::warning(whose + " are staged through host memory: no transport carries them from device to device" +
                 (has_links_in_nodes ? " between nodes; allreduce and adasum use those of the nodes" : ""));
  const Config& config = maker_.config();
  if (layout_.nodes > 1 && (config.torus_allreduce || config.hierarchical_allreduce == "1"))
    if (const std::string why = why_no_hierarchy(); !why.empty()) log::warning(whose + " " + why);
  log::debug("algorithms of " + whose + " by verb and size: " + maker_.selector().table(all_));
}

// Returns why allreduce is not hierarchical as the user has asked, "" if it is.
std::string Teams::why_no_hierarchy() const {
  if (!layout_.is_homogeneous())
    return "are reduced without the hierarchy of HOROVOD_HIERARCHICAL_ALLREDUCE: the nodes have from " +
           std::to_string(layout_.rails) + " to " + std::to_string(layout_.largest_node) +
           " ranks; start as many on each";
  if (all_.node == nullptr)
    return "are reduced without the hierarchy of HOROVOD_HIERARCHICAL_ALLREDUCE: no transport carries them from device "
           "to device in each node";
  if (maker_.config().torus_allreduce && all_.rail != &device_rail_)
    return "go between nodes over links of host memory, although HOROVOD_TORUS_ALLREDUCE is set: no transport carries "
           "them from device to device there";
  return "";
}

Progress Teams::fail(Error error) {
  failure_ = std::move(error);
  return Progress::failed;
}

void Teams::arm() noexcept {
  for (Connection& connection : connections_)
    if (connection.link) connection.link->arm();
}

bool Teams::needs_polling() noexcept {
  bool any = false;
  for (Connection& connection : connections_)
    if (connection.link) any |= connection.link->needs_polling();
  return any;
}

bool Teams::progresses_only_when_polled() noexcept {
  for (Connection& connection : connections_)
    if (connection.link && connection.link->progresses_only_when_polled()) return true;
  return false;
}

void Teams::abort_links_of_host(const Error& reason) noexcept {
  for (Connection& connection : connections_)
    if (connection.link && !is_of_devices(*connection.team)) connection.link->abort(reason);
}

void Teams::abort_links_of_devices(const Error& reason) noexcept {
  for (Connection& connection : connections_)
    if (connection.link && is_of_devices(*connection.team)) connection.link->abort(reason);
}

}  // namespace hvd::runtime
