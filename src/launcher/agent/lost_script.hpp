#pragma once
// What an agent of a batch job of Slurm does when the node with the job's script, and horovodrun, is lost.
//
// An elastic job has --no-kill. Slurm (22.05) then takes a node that fails out of the job, also the node of the script:
// no script is left, but the job goes on, and holds its other nodes until its time is over. An agent therefore does
// what Slurm does with other jobs whose node fails: it puts the job back into the queue if the job allows that, else it
// cancels the job. Slurm decides whether the node is lost, not the agent, from which only a network may be lost.
#include <chrono>
#include <functional>
#include <thread>

#include "base/deadline.hpp"
#include "base/settings/environment.hpp"

namespace hvd::launcher {

// When an agent asks Slurm: after `wait`, and then with a pause.
struct Turn {
  std::chrono::seconds wait, pause;
};
// Returns the turn of the agent on the node at this place among those of the job. At first one agent asks every 10 s:
// in a large job that on every second, third, … node, at most 29. They are spread over the job, because nodes beside
// each other are often lost together. After 5 minutes the others ask, too, one in a second, because the first ones may
// have no agents (-H names few nodes).
Turn turn_of_agent(int place, int nodes);

// How an agent waits.
struct Pace {
  std::function<Clock::time_point()> now = Clock::now;
  std::function<void(std::chrono::seconds)> pause = [](std::chrono::seconds span) {
    std::this_thread::sleep_for(span);
  };
};

// Called when horovodrun is gone. Returns at once outside of a batch job of Slurm, else when the job has ended, or when
// Slurm has had the time to notice that a node is lost and has noticed nothing.
void stand_in_for_lost_script(const Environment& environment, const Pace& pace = {});

}  // namespace hvd::launcher
