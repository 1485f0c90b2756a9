#pragma once
// What an agent of a batch job of Slurm does when the node with the job's script, and horovodrun, is lost.
//
// An elastic job has --no-kill. Slurm (22.05) then takes a node that fails out of the job, also the node of the script:
// no script is left, but the job goes on, and holds its other nodes until its time is over. An agent therefore does
// what Slurm does with other jobs whose node fails: it puts the job back into the queue if the job allows that, else it
// cancels the job. Slurm decides whether the node is lost, not the agent, from which only a network may be lost.
#include "base/settings/environment.hpp"

namespace hvd::launcher {

// Called when horovodrun is gone. Returns at once outside of a batch job of Slurm, else when the job has ended, or when
// Slurm has had the time to notice that a node is lost and has noticed nothing.
void stand_in_for_lost_script(const Environment& environment);

}  // namespace hvd::launcher
