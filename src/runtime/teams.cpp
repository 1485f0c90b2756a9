#include "runtime/teams.hpp"

#include <algorithm>
#include <map>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "runtime/network_report.hpp"
#include "topology/layout.hpp"
#include "transport/registry.hpp"

namespace hvd::runtime {

namespace {

// Where several transports reach a group, the first of these is taken.
constexpr const char* preference[] = {"shm", "inproc", "mpi", "tcp"};

int preference_of(std::string_view name) {
  auto found = std::find(std::begin(preference), std::end(preference), name);
  return static_cast<int>(found - std::begin(preference));
}

// By rank: the number of its node; nodes are numbered by their lowest rank, as in the layout.
std::vector<std::int32_t> number_nodes(const World& world) {
  std::map<std::string_view, std::int32_t> numbers;
  std::vector<std::int32_t> node_of;
  node_of.reserve(world.members.size());
  for (const hvd::Member& member : world.members)
    node_of.push_back(numbers.emplace(member.node, static_cast<std::int32_t>(numbers.size())).first->second);
  return node_of;
}

}  // namespace

Result<std::unique_ptr<Teams>> Teams::make(const transport::Surroundings& surroundings) {
  auto selector = collectives::Selector::make(*surroundings.config);
  if (!selector) return selector.error();
  std::unique_ptr<Teams> teams(new Teams());
  teams->selector_ = std::move(*selector);
  teams->host_ = surroundings.world->me().host;
  teams->needs_fabric_ = surroundings.config->require_fabric;
  for (const transport::Maker& maker : transport::registry()) teams->transports_.push_back(maker.make(surroundings));
  std::stable_sort(teams->transports_.begin(), teams->transports_.end(),
                   [](const auto& a, const auto& b) { return preference_of(a->name()) < preference_of(b->name()); });

  topology::Layout layout = topology::layout_of(*surroundings.world);
  for (collectives::Team* team : {&teams->world_, &teams->node_, &teams->rail_})
    team->selector = teams->selector_.get();
  teams->world_.group = layout.world;
  teams->connections_.push_back({&teams->world_, "world", nullptr, nullptr});
  if (layout.nodes > 1) {
    teams->world_.nodes = layout.nodes;
    teams->world_.rails = layout.rails;
    teams->node_of_ = number_nodes(*surroundings.world);
    teams->world_.node_of = teams->node_of_;
    teams->node_.group = layout.node;
    teams->world_.node = &teams->node_;
    teams->connections_.push_back({&teams->node_, "node " + std::to_string(layout.my_node), nullptr, nullptr});
    if (layout.rail.has_me()) {
      teams->rail_.group = layout.rail;
      teams->world_.rail = &teams->rail_;
      std::string name = "rail " + std::to_string(layout.node.me.value);
      teams->connections_.push_back({&teams->rail_, std::move(name), nullptr, nullptr});
    }
  }
  return teams;
}

Progress Teams::connect(transport::Exchange& exchange) {
  for (; next_ < connections_.size(); ++next_) {
    Connection& connection = connections_[next_];
    if (connection.team->size() == 1) continue;
    if (!connection.connecting) {
      auto able = std::find_if(transports_.begin(), transports_.end(), [&](const auto& transport) {
        return transport->reaches(connection.team->group, DeviceKind::host);
      });
      if (able == transports_.end()) {
        if (connection.team == &world_ && world_.node != nullptr) continue;  // reached by way of node and rail
        return fail({ErrorCode::unsupported, "no transport reaches all ranks of the " + connection.name +
                                                 "; ranks on several machines need a network transport"});
      }
      if (auto status = note(connection, (*able)->name()); !status) return fail(status.error());
      auto connecting = (*able)->connect(connection.team->group, connection.name, exchange);
      if (!connecting) return fail(connecting.error());
      connection.connecting = std::move(*connecting);
      log::debug("the link '" + connection.name + "' of " + std::to_string(connection.team->size()) +
                 " ranks is made over " + (*able)->name());
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
  bool is_between = world_.node != nullptr && connection.team != &node_;
  (is_between ? transport_between_ : transport_inside_) = transport;
  if (!is_between || !needs_fabric_) return {};
  return require_fabric(transport, NetworkFacts::of_this_host(Environment::of_this_process()), host_);
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

bool Teams::are_moved_by_looks() noexcept {
  for (Connection& connection : connections_)
    if (connection.link && connection.link->is_moved_by_looks()) return true;
  return false;
}

void Teams::abort(const Error& reason) noexcept {
  for (Connection& connection : connections_)
    if (connection.link) connection.link->abort(reason);
}

}  // namespace hvd::runtime
