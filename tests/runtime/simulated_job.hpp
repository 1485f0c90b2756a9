#pragma once
// Whole ranks stepped by hand in a time that is made up: how a job ends, in any order of events that a seed draws.
//
// Board, log, agreement of the nodes and departure of every rank are the real ones, put together as the engine does
// (Engine::progress). Made up is what is below them: links with delays, what watchers and links notice of a peer and
// when, how long a process lives on after its runtime has ended, and batches, in which each rank sends every other one
// message and waits for theirs.
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
#include "runtime/agreement.hpp"
#include "runtime/departure.hpp"
#include "topology/layout.hpp"

namespace hvd::runtime::simulated {

using Time = Departure::Time;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds start_time(30), peer_timeout(10);
// Of whatever travels.
constexpr milliseconds longest_delay(500);

// When a rank comes to harm.
enum class Moment : std::uint8_t { connecting, running, in_a_batch, as_it_stops, as_the_log_ends };
enum class Harm : std::uint8_t {
  kill,    // its process is gone
  vanish,  // its whole node is, and no connection says so
  refuse,  // it cannot take part in the start
  halt,    // it looks at nothing for a while
};
struct Incident {
  Rank rank;
  Harm harm = Harm::kill;
  Moment moment = Moment::running;
  int batch = 0;        // in_a_batch: of so many before it
  milliseconds time{};  // connecting, running: since the beginning
  milliseconds halt_time{};
};

// What a program does: so many ops, some of them at once, then it stops.
struct Program {
  int operations = 3, at_once = 1;
  milliseconds begins{};              // joins the job
  std::optional<milliseconds> stops;  // whatever it is at, if it does not come to its end before
  std::string reason;                 // of its stop
};

struct Scenario {
  std::uint64_t seed = 1;
  std::vector<int> shape;
  int tree_width = 8;
  std::vector<Program> programs;  // by rank
  std::vector<Incident> incidents;
  int lost_messages = 0;  // of batches, in a node and without anybody noticing
  int cut_links = 0;      // between leaders, of which both find the other silent
};

struct HandleState {
  std::string name;
  bool is_settled = false;
  std::optional<Error> error;
};

// What became of a rank.
struct Fate {
  bool is_dead = false;  // killed, or its node has vanished
  std::optional<Error> reason;
  bool was_connected = false;
  bool is_in_order = false;
  bool has_left_alone = false;
  std::optional<Time> began, wished, doubted, held, ended;
  milliseconds halted{};
  std::vector<HandleState> handles;
};

class SimulatedRank;

class SimulatedJob {
 public:
  explicit SimulatedJob(Scenario scenario);
  ~SimulatedJob();

  // Until all ranks have ended or are dead. False if some never do.
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
  // When what `from` sends to `to` now gets there: not before what it has sent earlier.
  enum class Way : std::uint8_t { control, data };
  Time arrival(Way way, Rank from, Rank to);

  void begin(Rank rank);
  void plan_links();
  void plan(const Incident& incident);
  void suffer(const Incident& incident);
  void kill(Rank rank, bool is_silent);
  // Its process is gone, or cannot be heard any more: the others notice, by and by.
  void lose_connections(Rank of, bool is_silent);
  void cut_a_link();
  bool is_over() const;
  void let_everybody_look();
  std::optional<Time> next_time() const;

  const Scenario scenario_;
  World world_;
  std::vector<topology::Layout> layouts_;  // by rank
  std::mt19937_64 random_;
  Time now_{std::chrono::hours(1)};
  std::multimap<Time, std::function<void()>> events_;
  std::map<std::tuple<Way, Rank, Rank>, Time> last_arrival_;
  std::vector<std::unique_ptr<SimulatedRank>> ranks_;
  std::set<std::pair<Rank, Rank>> cut_;
  int messages_to_lose_;
  bool do_links_of_a_node_tell_;  // that the other end has given up, as inproc's do and shm's do not
};

}  // namespace hvd::runtime::simulated
