#include "runtime/teams.hpp"

#include <algorithm>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "connections/mpi_peers.hpp"
#include "runtime/network_report.hpp"
#include "transport/registry.hpp"
#include "transport/shm/regions.hpp"

namespace hvd::runtime {

namespace {

// Where several transports reach a group, the first of these is taken.
constexpr const char* preference[] = {"shm", "inproc", "mpi", "tcp"};

int preference_of(std::string_view name) {
  auto found = std::find(std::begin(preference), std::end(preference), name);
  return static_cast<int>(found - std::begin(preference));
}

// The ranks of a set as one of them sees them. The names of links are equal on all members and used once.
std::string name_of_link(ProcessSetId set, const std::string& name) {
  return set == global_process_set ? name : "set " + std::to_string(set.value) + " " + name;
}

}  // namespace

TeamMaker::Transports TeamMaker::make_transports(const transport::Surroundings& surroundings) {
  Transports transports;
  for (const transport::Maker& maker : transport::registry()) transports.push_back(maker.make(surroundings));
  std::stable_sort(transports.begin(), transports.end(),
                   [](const auto& a, const auto& b) { return preference_of(a->name()) < preference_of(b->name()); });
  return transports;
}

Result<std::unique_ptr<TeamMaker>> TeamMaker::make(const transport::Surroundings& surroundings) {
  auto selector = collectives::Selector::make(*surroundings.config);
  if (!selector) return selector.error();
  std::unique_ptr<TeamMaker> maker(new TeamMaker());
  maker->selector_ = std::move(*selector);
  maker->surroundings_ = surroundings;
  maker->of_world_ = make_transports(surroundings);
  transport::Surroundings of_sets = surroundings;
  of_sets.offer<transport::shm::SharedRegions>(nullptr);
  // The communicator of a set is made by a thread while the engine's calls MPI for others.
  if (surroundings.config->mpi_threads_disable) of_sets.offer<connections::MpiPeers>(nullptr);
  maker->of_sets_ = make_transports(of_sets);
  return maker;
}

transport::Transport* TeamMaker::find(const Group& group, ProcessSetId set) const {
  const Transports& transports = set == global_process_set ? of_world_ : of_sets_;
  auto able = std::find_if(transports.begin(), transports.end(),
                           [&](const auto& transport) { return transport->reaches(group, DeviceKind::host); });
  return able == transports.end() ? nullptr : able->get();
}

Teams::Teams(const TeamMaker& maker, const ProcessSet& set)
    : maker_(maker), set_(set.id), layout_(topology::layout_of(maker.world(), set.ranks)) {
  all_.group = layout_.world;
  add(all_, "world");
  if (layout_.nodes == 1) return;
  all_.nodes = layout_.nodes;
  all_.rails = layout_.rails;
  all_.node_of = layout_.node_of;
  node_.group = layout_.node;
  all_.node = &node_;
  add(node_, "node " + std::to_string(layout_.my_node));
  if (!layout_.rail.has_me()) return;
  rail_.group = layout_.rail;
  all_.rail = &rail_;
  add(rail_, "rail " + std::to_string(layout_.node.me.value));
}

void Teams::add(collectives::Team& team, std::string name) {
  team.selector = &maker_.selector();
  connections_.push_back({&team, name_of_link(set_, name), nullptr, nullptr});
}

Progress Teams::connect(transport::Exchange& exchange) {
  for (; next_ < connections_.size(); ++next_) {
    Connection& connection = connections_[next_];
    if (connection.team->size() == 1) continue;
    if (!connection.connecting) {
      transport::Transport* able = maker_.find(connection.team->group, set_);
      if (able == nullptr) {
        if (connection.team == &all_ && all_.node != nullptr) continue;  // reached by way of node and rail
        return fail({ErrorCode::unsupported, "no transport reaches all ranks of the " + connection.name +
                                                 "; ranks on several machines need a network transport"});
      }
      if (auto status = note(connection, able->name()); !status) return fail(status.error());
      auto connecting = able->connect(connection.team->group, connection.name, exchange);
      if (!connecting) return fail(connecting.error());
      connection.connecting = std::move(*connecting);
      log::debug("the link '" + connection.name + "' of " + std::to_string(connection.team->size()) +
                 " ranks is made over " + able->name());
    }
    switch (connection.connecting->step()) {
      case Progress::pending: return Progress::pending;
      case Progress::failed: return fail(connection.connecting->failure());
      case Progress::done: break;
    }
    connection.link = connection.connecting->take();
    connection.connecting.reset();
    connection.team->link = connection.link.get();
  }
  return Progress::done;
}

// Of the hop that the connection makes.
Status Teams::note(const Connection& connection, std::string_view transport) {
  bool is_between = all_.node != nullptr && connection.team != &node_;
  (is_between ? transport_between_ : transport_inside_) = transport;
  if (!is_between || !maker_.config().require_fabric) return {};
  return require_fabric(transport, NetworkFacts::of_this_host(Environment::of_this_process()),
                        maker_.world().me().host);
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

void Teams::abort(const Error& reason) noexcept {
  for (Connection& connection : connections_)
    if (connection.link) connection.link->abort(reason);
}

}  // namespace hvd::runtime
