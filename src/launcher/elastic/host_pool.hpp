#pragma once
// The hosts of an elastic job, and which of their slots may have a worker: the slots that discovery has found, except
// those that are out. A host or a slot goes out when a rank has failed there. With a cooldown it comes back at the end
// of the cooldown; otherwise it stays out. Pure: time and random numbers are passed in.
#include <chrono>
#include <compare>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "launcher/options/hosts.hpp"

namespace hvd::launcher {

// --blacklist-cooldown-range: a host that has failed for the nth time stays out lower * 2^(n-1) seconds and up to
// `lower` more, at most `upper`.
struct CooldownRange {
  std::chrono::seconds lower{1}, upper{1};
};

class HostPool {
 public:
  using Time = Clock::time_point;
  explicit HostPool(std::optional<CooldownRange> cooldown) : cooldown_(cooldown) {}

  // All hosts that exist now. Hosts that were known keep their place, others come after them. A host that is named
  // twice counts once, with the slots of its last line.
  void find(const std::vector<HostSlots>& found);

  // These take a host, or a slot of it, out. Each returns when it may come back; empty: never.
  std::optional<Time> take_out(const std::string& host, Time now, double drawn);
  std::optional<Time> take_out(const std::string& host, int slot, Time now, double drawn);

  bool is_out(const std::string& host, Time now) const;  // the whole host
  // True if the slot was found and is not out.
  bool may_use(const std::string& host, int slot, Time now) const;
  // Usable slots in the order of hosts and slots.
  struct Slot {
    std::string host;
    int index = 0;
    friend auto operator<=>(const Slot&, const Slot&) = default;
  };
  std::vector<Slot> usable(Time now) const;
  // How many slots are usable at that time if nothing else is found or lost.
  std::size_t usable_at(Time then) const { return usable(then).size(); }
  // When the next host or slot that is out comes back; empty if none does.
  std::optional<Time> next_return(Time now) const;

  // The place of the host among all hosts that were ever found. The host that was found first has the lowest place.
  std::size_t place_of(const std::string& host) const;

 private:
  struct Out {
    int times = 0;              // how often it went out
    std::optional<Time> until;  // empty: for the rest of the job, if times > 0
    bool lasts(Time now) const { return times > 0 && (!until || now < *until); }
  };
  struct Host {
    std::string name;
    int slots = 0;  // 0: it is not found any more
    Out out;
    std::map<int, Out> slots_out;
  };
  Host& host(const std::string& name);
  const Host* find_host(const std::string& name) const;
  std::optional<Time> take_out(Out& out, Time now, double drawn) const;

  std::vector<Host> hosts_;
  std::optional<CooldownRange> cooldown_;
};

}  // namespace hvd::launcher
