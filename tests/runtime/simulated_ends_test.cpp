// Jobs of simulated whole ranks that end in ways drawn from seeds, and the properties that every end must have.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/world.hpp"
#include "runtime/simulated_job.hpp"
#include "sanitized.hpp"

namespace hvd::runtime::simulated {
namespace {

constexpr std::uint64_t jobs = testing::is_sanitized ? 60 : 600;

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed * 7919 + 1) {}
  int below(int number) { return static_cast<int>(random_() % static_cast<unsigned>(number)); }
  milliseconds time(milliseconds longest) { return milliseconds(below(static_cast<int>(longest.count()) + 1)); }

 private:
  std::mt19937_64 random_;
};

// Programs that run to their ends. Some reach their end earlier than others.
Scenario peaceful(std::uint64_t seed, Draw& draw) {
  static const std::vector<std::vector<int>> shapes{{1},    {2},       {4},       {1, 1},
                                                    {2, 2}, {3, 1, 2}, {1, 1, 1}, {1, 2, 1, 2, 1}};
  Scenario scenario;
  scenario.seed = seed;
  scenario.shape = shapes[static_cast<std::size_t>(draw.below(static_cast<int>(shapes.size())))];
  const int widths[]{1, 2, 8};
  scenario.tree_width = widths[draw.below(3)];
  int ranks = 0;
  for (int seats : scenario.shape) ranks += seats;
  for (int rank = 0; rank < ranks; ++rank) {
    Program program;
    program.operations = 3 + draw.below(3);
    program.at_once = 1 + draw.below(3);
    program.begins = draw.time(seconds(2));
    if (draw.below(4) == 0) program.stops = draw.time(seconds(6));
    else program.stops = seconds(40);  // so that nobody waits forever
    if (draw.below(6) == 0) program.reason = "MPI ends";
    scenario.programs.push_back(program);
  }
  return scenario;
}

Rank any_rank(const Scenario& scenario, Draw& draw) {
  return Rank{draw.below(static_cast<int>(scenario.programs.size()))};
}

Incident any_incident(const Scenario& scenario, Draw& draw) {
  Incident incident;
  incident.rank = any_rank(scenario, draw);
  incident.harm = static_cast<Harm>(draw.below(4));
  incident.moment = static_cast<Moment>(draw.below(5));
  if (incident.harm == Harm::refuse) incident.moment = Moment::connecting;
  incident.batch = draw.below(3);
  incident.time =
      incident.moment == Moment::connecting ? draw.time(milliseconds(2500)) : seconds(3) + draw.time(seconds(4));
  incident.halt_time = draw.time(seconds(15));
  return incident;
}

std::string text_of(const Fate& fate) {
  if (fate.is_dead) return "dead";
  if (!fate.ended) return "has not ended";
  return std::string(name_of(fate.reason->code)) + (fate.is_in_order ? ", in order: " : ": ") + fate.reason->message;
}
std::string text_of(const SimulatedJob& job) {
  std::string text;
  for (int rank = 0; rank < job.size(); ++rank)
    text += "\n  rank " + std::to_string(rank) + " " + text_of(job.fate(Rank{rank}));
  return text;
}

// True if the rank died or ended for a reason of its own. Other ranks may name such a rank.
bool is_a_cause(const Fate& fate) {
  return fate.is_dead || (fate.reason && fate.reason->code != ErrorCode::peer_lost && !fate.is_in_order);
}

// Returns the rank that is named as the cause. It is the last rank in the text: a rank that has given up repeats which
// rank it was told about.
Rank named_by(const SimulatedJob& job, const std::string& reason) {
  Rank named{-1};
  std::size_t place = 0;
  for (int rank = 0; rank < job.size(); ++rank) {
    std::size_t found = reason.rfind(describe(job.world(), Rank{rank}));
    if (found == std::string::npos || (named.value >= 0 && found < place)) continue;
    named = Rank{rank};
    place = found;
  }
  return named;
}

// True if the text has the message of a rank that is a cause.
bool quotes_a_cause(const SimulatedJob& job, const std::string& reason) {
  for (int rank = 0; rank < job.size(); ++rank) {
    const Fate& fate = job.fate(Rank{rank});
    if (is_a_cause(fate) && fate.reason && reason.find(fate.reason->message) != std::string::npos) return true;
  }
  return false;
}

void expect_an_end_in_time(const SimulatedJob& job) {
  constexpr milliseconds a_look(1);
  for (int rank = 0; rank < job.size(); ++rank) {
    const Fate& fate = job.fate(Rank{rank});
    if (fate.is_dead) continue;
    ASSERT_TRUE(fate.ended) << "rank " << rank;
    for (const HandleState& handle : fate.handles) EXPECT_TRUE(handle.is_settled) << handle.name << " of rank " << rank;
    // A halted rank may be late by the time of its halt. No other delay is allowed.
    milliseconds late = fate.halted + a_look;
    if (fate.requested) {
      EXPECT_LE(*fate.ended, std::max(*fate.requested, *fate.began + start_time) + Departure::answer_time + late);
    }
    if (fate.doubted) {
      EXPECT_LE(*fate.ended, *fate.doubted + peer_timeout + late);
    }
    if (fate.held) {
      EXPECT_LE(*fate.ended, *fate.held + Departure::time_to_end + late);
      EXPECT_TRUE(!fate.requested || *fate.requested >= *fate.held || fate.halted > milliseconds(0));
    }
  }
}

void expect_no_survivor_is_blamed(const SimulatedJob& job) {
  for (int rank = 0; rank < job.size(); ++rank) {
    const Fate& fate = job.fate(Rank{rank});
    if (!fate.ended || fate.reason->code != ErrorCode::peer_lost) continue;
    Rank named = named_by(job, fate.reason->message);
    bool is_right = (named.value >= 0 && is_a_cause(job.fate(named))) || quotes_a_cause(job, fate.reason->message);
    EXPECT_TRUE(is_right) << "rank " << rank << " names rank " << named.value;
  }
}

TEST(SimulatedEnds, are_in_order_on_every_rank_when_nobody_comes_to_harm) {
  int held = 0;
  for (std::uint64_t seed = 1; seed <= jobs; ++seed) {
    Draw draw(seed);
    Scenario scenario = peaceful(seed, draw);
    if (draw.below(2) == 0) {  // a halt, shorter than the wait for any answer
      Incident halt;
      halt.rank = any_rank(scenario, draw);
      halt.harm = Harm::halt;
      halt.time = draw.time(seconds(6));
      halt.halt_time = draw.time(seconds(5));
      scenario.incidents.push_back(halt);
    }
    SimulatedJob job(scenario);
    ASSERT_TRUE(job.run()) << "seed " << seed << text_of(job);
    std::set<Rank> stopped_by;
    for (int rank = 0; rank < job.size(); ++rank) {
      const Fate& fate = job.fate(Rank{rank});
      EXPECT_TRUE(fate.is_in_order) << "rank " << rank;
      EXPECT_EQ(fate.reason->code, ErrorCode::shut_down) << "rank " << rank;
      bool is_mine = fate.reason->message.find("by this rank") != std::string::npos;
      stopped_by.insert(is_mine ? Rank{rank} : named_by(job, fate.reason->message));
      held += fate.held ? 1 : 0;
    }
    EXPECT_EQ(stopped_by.size(), 1u);
    expect_an_end_in_time(job);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed << text_of(job);
  }
  EXPECT_GT(held, 0);
}

TEST(SimulatedEnds, name_the_one_rank_that_came_to_harm_in_whatever_phase) {
  int told = 0, in_order = 0;
  std::map<Moment, int> dead;
  for (std::uint64_t seed = 1; seed <= 2 * jobs; ++seed) {
    Draw draw(seed);
    Scenario scenario = peaceful(seed, draw);
    Incident incident = any_incident(scenario, draw);
    if (incident.harm == Harm::halt) incident.harm = Harm::kill;
    scenario.incidents.push_back(incident);
    SimulatedJob job(scenario);
    ASSERT_TRUE(job.run()) << "seed " << seed << text_of(job);
    expect_an_end_in_time(job);
    expect_no_survivor_is_blamed(job);
    // A start that fails may end differently on every rank.
    bool is_plain = incident.harm == Harm::kill, has_left_any = false;
    for (int rank = 0; rank < job.size(); ++rank) {
      is_plain = is_plain && job.fate(Rank{rank}).was_connected;
      has_left_any = has_left_any || job.fate(Rank{rank}).is_in_order;
    }
    dead[incident.moment] += job.fate(incident.rank).is_dead ? 1 : 0;
    for (int rank = 0; rank < job.size(); ++rank) {
      const Fate& fate = job.fate(Rank{rank});
      told += fate.reason && fate.reason->code == ErrorCode::peer_lost ? 1 : 0;
      in_order += fate.is_in_order ? 1 : 0;
      if (is_plain && fate.reason && fate.reason->code == ErrorCode::peer_lost && !fate.is_dead) {
        EXPECT_EQ(named_by(job, fate.reason->message), incident.rank) << "rank " << rank;
        bool has_heard_why = fate.reason->message.find("has closed its TCP connection") == std::string::npos;
        EXPECT_TRUE(has_heard_why || has_left_any) << "rank " << rank;  // the news may have passed a rank that left
      }
    }
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed << text_of(job);
  }
  for (Moment moment :
       {Moment::connecting, Moment::running, Moment::in_a_batch, Moment::as_it_stops, Moment::as_the_log_ends})
    EXPECT_GT(dead[moment], 0) << static_cast<int>(moment);
  EXPECT_GT(told, 0);
  EXPECT_GT(in_order, 0);
}

TEST(SimulatedEnds, come_in_time_whatever_goes_wrong_and_however_often) {
  int alone = 0, doubted = 0, late = 0, refused = 0;
  for (std::uint64_t seed = 1; seed <= 2 * jobs; ++seed) {
    Draw draw(seed);
    Scenario scenario = peaceful(seed, draw);
    for (int more = draw.below(4); more > 0; --more) scenario.incidents.push_back(any_incident(scenario, draw));
    scenario.lost_messages = draw.below(3);
    scenario.cut_links = draw.below(2);
    SimulatedJob job(scenario);
    ASSERT_TRUE(job.run()) << "seed " << seed << text_of(job);
    expect_an_end_in_time(job);
    if (scenario.cut_links == 0) expect_no_survivor_is_blamed(job);
    for (int rank = 0; rank < job.size(); ++rank) {
      const Fate& fate = job.fate(Rank{rank});
      alone += fate.has_left_alone ? 1 : 0;
      doubted += fate.doubted ? 1 : 0;
      if (!fate.reason) continue;
      late += fate.reason->code == ErrorCode::timeout && !fate.has_left_alone ? 1 : 0;
      refused += fate.reason->code == ErrorCode::unsupported ? 1 : 0;
    }
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed << text_of(job);
  }
  EXPECT_GT(alone, 0);
  EXPECT_GT(doubted, 0);
  EXPECT_GT(late, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace hvd::runtime::simulated
