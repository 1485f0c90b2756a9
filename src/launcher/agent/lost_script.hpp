#pragma once
// What an agent of a batch job of Slurm does when the node with the job's script, and horovodrun, is lost.
//
// An elastic job has --no-kill. Slurm (22.05) then takes a node that fails out of the job, also the node of the script:
// no script is left, but the job goes on, and holds its other nodes until its time is over. An agent therefore does
// what Slurm does with other jobs whose node fails: it puts the job back into the queue if the job allows that, else it
// cancels the job. Slurm decides whether the node is lost, not the agent, from which only a network may be lost.
#include <chrono>
#include <optional>

#include "base/settings/environment.hpp"

namespace hvd::launcher {

// When an agent asks Slurm: after `wait`, and then with a pause.
struct Turn {
  std::chrono::seconds wait, pause;
};
// Returns the turn of the agent on the node at this place among those of the job, so that one agent asks every 10 s. In
// a large job every second, third, … agent asks, at most 29; nullopt: this one does not. They are spread over the job,
// because nodes beside each other are often lost together.
std::optional<Turn> turn_of_agent(int place, int nodes);

// Called when horovodrun is gone. Returns at once outside of a batch job of Slurm and where other agents ask, else when
// the job has ended, or when Slurm has had the time to notice that a node is lost and has noticed nothing.
void stand_in_for_lost_script(const Environment& environment);

}  // namespace hvd::launcher
