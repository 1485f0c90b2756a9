#pragma once
// The teams of a world: all ranks, my node, my rail, with the links that the transports offer.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithm.hpp"
#include "collectives/selector.hpp"
#include "transport/transport.hpp"

namespace hvd::runtime {

class Teams {
 public:
  // Needs an algorithm choice that can be made (HOROVOD_ALGORITHM).
  static Result<std::unique_ptr<Teams>> make(const transport::Surroundings& surroundings);

  // Connects all links, on the engine's thread, in the same order on all ranks. Never blocks.
  Progress connect(transport::Exchange& exchange);
  const Error& failure() const { return *failure_; }

  collectives::Team& world() { return world_; }
  Result<const collectives::Algorithm*> choose(const Collective& collective, const collectives::Team& team) const {
    return selector_->choose(collective, team);
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
  // Some link moves only while the engine looks (transport::Link::is_moved_by_looks).
  bool are_moved_by_looks() noexcept;
  void abort(const Error& reason) noexcept;

 private:
  struct Connection {
    collectives::Team* team;
    std::string name;
    std::unique_ptr<transport::Connecting> connecting;
    std::unique_ptr<transport::Link> link;
  };
  Teams() = default;
  Progress fail(Error error);
  Status note(const Connection& connection, std::string_view transport);

  std::unique_ptr<collectives::Selector> selector_;
  std::vector<std::unique_ptr<transport::Transport>> transports_;  // preferred first
  collectives::Team world_, node_, rail_;
  std::vector<std::int32_t> node_of_;  // by rank
  std::vector<Connection> connections_;
  std::string host_;
  bool needs_fabric_ = false;
  std::string_view transport_inside_, transport_between_;
  std::size_t next_ = 0;  // the connection to make
  std::optional<Error> failure_;
};

}  // namespace hvd::runtime
