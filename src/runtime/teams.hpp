#pragma once
// The teams of a process set: its ranks, those of them on my node, my rail, with the links that the transports offer.
// Links are made when the set is first used; those of the world at the start.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithm.hpp"
#include "collectives/selection/selector.hpp"
#include "runtime/process_sets.hpp"
#include "topology/layout.hpp"
#include "transport/transport.hpp"

namespace hvd::runtime {

// What all process sets of a rank share to make their teams of.
class TeamMaker {
 public:
  // Needs an algorithm choice that can be made (HOROVOD_ALGORITHM).
  static Result<std::unique_ptr<TeamMaker>> make(const transport::Surroundings& surroundings);

  const World& world() const { return *surroundings_.world; }
  const Config& config() const { return *surroundings_.config; }
  collectives::Selector& selector() const { return *selector_; }
  // The preferred transport that reaches the group; null if none does.
  transport::Transport* find(const Group& group, ProcessSetId set) const;

 private:
  using Transports = std::vector<std::unique_ptr<transport::Transport>>;  // preferred first
  TeamMaker() = default;
  static Transports make_transports(const transport::Surroundings& surroundings);

  transport::Surroundings surroundings_;
  std::unique_ptr<collectives::Selector> selector_;
  // Memory that tensors share with the ranks of a node comes and goes in the order of the world's batches, which those
  // of other sets do not keep: they do without it.
  Transports of_world_, of_sets_;
};

class Teams {
 public:
  // The rank is a member of the set.
  Teams(const TeamMaker& maker, const ProcessSet& set);

  // Connects all links, on the engine's thread, in the same order on all members. Never blocks.
  Progress connect(transport::Exchange& exchange);
  const Error& failure() const { return *failure_; }

  collectives::Team& all() { return all_; }
  const collectives::Team& all() const { return all_; }
  Result<const collectives::Algorithm*> choose(const Collective& collective) const {
    return maker_.selector().choose(collective, all_);
  }
  // Transports of the hops, as they were chosen; empty where nobody is to be reached.
  std::string_view transport_inside() const { return transport_inside_; }
  std::string_view transport_between() const { return transport_between_; }
  // Of the longest hop.
  std::string_view transport() const { return transport_between_.empty() ? transport_inside_ : transport_between_; }
  // The engine is about to sleep (transport::Link::arm).
  void arm() noexcept;
  // Some link cannot wake the engine (transport::Link::needs_polling).
  bool needs_polling() noexcept;
  // Some link moves only while the engine looks (transport::Link::progresses_only_when_polled).
  bool progresses_only_when_polled() noexcept;
  void abort(const Error& reason) noexcept;

 private:
  struct Connection {
    collectives::Team* team;
    std::string name;
    std::unique_ptr<transport::Connecting> connecting;
    std::unique_ptr<transport::Link> link;
  };
  void add(collectives::Team& team, const std::string& name);
  Progress fail(Error error);
  Status note(const Connection& connection, std::string_view transport);

  const TeamMaker& maker_;
  const ProcessSetId set_;
  const topology::Layout layout_;
  collectives::Team all_, node_, rail_;
  std::vector<Connection> connections_;
  std::string_view transport_inside_, transport_between_;
  std::size_t next_ = 0;  // the connection to make
  std::optional<Error> failure_;
};

}  // namespace hvd::runtime
