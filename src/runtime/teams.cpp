#include "runtime/teams.hpp"

#include <algorithm>

#include "topology/layout.hpp"
#include "transport/registry.hpp"

namespace hvd::runtime {

namespace {

// Where several transports reach a group, the first of these is taken.
constexpr const char* preference[] = {"shm", "inproc"};

int preference_of(std::string_view name) {
  auto found = std::find(std::begin(preference), std::end(preference), name);
  return static_cast<int>(found - std::begin(preference));
}

}  // namespace

Result<std::unique_ptr<Teams>> Teams::make(const transport::Surroundings& surroundings) {
  auto selector = collectives::Selector::make(*surroundings.config);
  if (!selector) return selector.error();
  std::unique_ptr<Teams> teams(new Teams());
  teams->selector_ = std::move(*selector);
  for (const transport::Maker& maker : transport::registry()) teams->transports_.push_back(maker.make(surroundings));
  std::stable_sort(teams->transports_.begin(), teams->transports_.end(),
                   [](const auto& a, const auto& b) { return preference_of(a->name()) < preference_of(b->name()); });

  topology::Layout layout = topology::layout_of(*surroundings.world);
  for (collectives::Team* team : {&teams->world_, &teams->node_, &teams->rail_})
    team->selector = teams->selector_.get();
  teams->world_.group = layout.world;
  teams->members_.push_back({&teams->world_, "world", nullptr, nullptr});
  if (layout.nodes > 1) {
    teams->world_.rails = layout.rails;
    teams->node_.group = layout.node;
    teams->world_.node = &teams->node_;
    teams->members_.push_back({&teams->node_, "node", nullptr, nullptr});
    if (layout.rail.has_me()) {
      teams->rail_.group = layout.rail;
      teams->world_.rail = &teams->rail_;
      teams->members_.push_back({&teams->rail_, "rail", nullptr, nullptr});
    }
  }
  return teams;
}

Progress Teams::connect(transport::Exchange& exchange) {
  for (; next_ < members_.size(); ++next_) {
    Member& member = members_[next_];
    if (member.team->size() == 1) continue;
    if (!member.connecting) {
      auto able = std::find_if(transports_.begin(), transports_.end(), [&](const auto& transport) {
        return transport->reaches(member.team->group, DeviceKind::host);
      });
      if (able == transports_.end()) {
        if (member.team == &world_ && world_.node != nullptr) continue;  // reached by way of node and rail
        return fail({ErrorCode::unsupported, std::string("no transport reaches all ranks of the ") + member.name +
                                                 "; ranks on several machines need a network transport"});
      }
      auto connecting = (*able)->connect(member.team->group, member.name, exchange);
      if (!connecting) return fail(connecting.error());
      member.connecting = std::move(*connecting);
    }
    switch (member.connecting->step()) {
      case Progress::pending: return Progress::pending;
      case Progress::failed: return fail(member.connecting->failure());
      case Progress::done: break;
    }
    member.link = member.connecting->take();
    member.connecting.reset();
    member.team->link = member.link.get();
  }
  return Progress::done;
}

Progress Teams::fail(Error error) {
  failure_ = std::move(error);
  return Progress::failed;
}

void Teams::abort(const Error& reason) noexcept {
  for (Member& member : members_)
    if (member.link) member.link->abort(reason);
}

}  // namespace hvd::runtime
