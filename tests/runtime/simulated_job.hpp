#pragma once
// Whole ranks in a made-up time, stepped by hand: how a job ends, in any order of events that a seed draws.
//
// The board, the log, the agreement of the nodes and the departure of every rank are the real ones, combined as in the
// engine (Engine::progress). Everything below them is simulated: links with delays; what watchers and links notice of a
// peer, and when; how long a process lives after its runtime has ended; and batches, in which each rank sends one
// message to every other rank and waits for theirs.
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/world.hpp"
#include "control/node_board.hpp"
#include "runtime/agreement/agreement.hpp"
#include "runtime/ending/departure.hpp"
#include "topology/layout.hpp"

namespace hvd::runtime::simulated {

using Time = Departure::Time;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds start_time(30), peer_timeout(10);
// The longest delay of any message.
constexpr milliseconds longest_delay(500);

// The moment at which a rank comes to harm.
enum class Moment : std::uint8_t { connecting, running, in_a_batch, as_it_stops, as_the_log_ends };
enum class Harm : std::uint8_t {
  kill,    // the process of the rank dies
  vanish,  // its whole node dies, and no connection tells that
  refuse,  // the rank cannot take part in the start
  halt,    // the rank notices nothing for a while
};
struct Incident {
  Rank rank;
  Harm harm = Harm::kill;
  Moment moment = Moment::running;
  int batch = 0;        // in_a_batch: how many batches come before
  milliseconds time{};  // connecting, running: since the start
  milliseconds halt_time{};
};

// The actions of a program: it runs some ops, several of them at once, and then stops.
struct Program {
  int operations = 3, at_once = 1;
  milliseconds begins{};              // time when the program joins the job
  std::optional<milliseconds> stops;  // stops then, whatever it is doing, if it has not ended earlier
  std::string reason;                 // the reason that it gives for its stop
};

struct Scenario {
  std::uint64_t seed = 1;
  std::vector<int> shape;
  int tree_width = 8;
  std::vector<Program> programs;  // the program of each rank
  std::vector<Incident> incidents;
  int lost_messages = 0;  // messages of batches, lost in a node unnoticed
  int cut_links = 0;      // links between leaders; both ends find the other silent
};

struct HandleState {
  std::string name;
  bool is_settled = false;
  std::optional<Error> error;
};

// The history of one rank: whether and how it ended.
struct Fate {
  bool is_dead = false;  // killed, or its node has vanished
  std::optional<Error> reason;
  bool was_connected = false;
  bool is_in_order = false;
  bool has_left_alone = false;
  std::optional<Time> began, requested, doubted, held, ended;
  milliseconds halted{};
  std::vector<HandleState> handles;
};

class SimulatedRank;

class SimulatedJob {
 public:
  explicit SimulatedJob(Scenario scenario);
  ~SimulatedJob();

  // Runs until all ranks have ended or are dead. False if some never end.
  bool run();
  const Fate& fate(Rank rank) const;
  int size() const { return world_.size(); }
  const World& world() const { return world_; }

 private:
  friend class SimulatedRank;
  friend class SimulatedLeader;

  void at(Time time, std::function<void()> event) { events_.emplace(time, std::move(event)); }
  void after(milliseconds time, std::function<void()> event) { at(now_ + time, std::move(event)); }
  milliseconds draw(milliseconds longest);
  bool draw_one_of(int number) { return random_() % static_cast<unsigned>(number) == 0; }
  SimulatedRank& rank(Rank it) { return *ranks_[static_cast<std::size_t>(it.value)]; }
  // The time when a message that `from` sends now reaches `to`. It never arrives before earlier messages on this way.
  enum class Way : std::uint8_t { control, data };
  Time arrival(Way way, Rank from, Rank to);

  void begin(Rank rank);
  void plan_links();
  void plan(const Incident& incident);
  void suffer(const Incident& incident);
  void kill(Rank rank, bool is_silent);
  // The rank's process has died or can no longer be heard. The other ranks notice that one after another.
  void lose_connections(Rank of, bool is_silent);
  void cut_a_link();
  bool is_over() const;
  void let_everybody_look();
  std::optional<Time> next_time() const;

  const Scenario scenario_;
  World world_;
  std::vector<topology::Layout> layouts_;  // the layout as each rank sees it
  std::mt19937_64 random_;
  Time now_{std::chrono::hours(1)};
  std::multimap<Time, std::function<void()>> events_;
  std::map<std::tuple<Way, Rank, Rank>, Time> last_arrival_;
  std::vector<std::unique_ptr<SimulatedRank>> ranks_;
  std::set<std::pair<Rank, Rank>> cut_;
  int messages_to_lose_;
  bool do_links_of_a_node_tell_;  // whether a link tells that its other end gave up: inproc's do, shm's do not
};

}  // namespace hvd::runtime::simulated
