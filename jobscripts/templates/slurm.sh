#!/bin/bash
# {{title}}: {{nodes}} x {{ranks_per_node}} ranks. Written by horovodrun --jobscript; submit it with sbatch.
#SBATCH --job-name={{job_name}}
#SBATCH --nodes={{nodes}}
#SBATCH --ntasks-per-node={{ranks_per_node}}
%if cpus_per_rank
#SBATCH --cpus-per-task={{cpus_per_rank}}
%end
%if gpus_per_node
#SBATCH --gpus-per-node={{gpus_per_node}}
%end
#SBATCH --time={{time}}
%if account
#SBATCH --account={{account}}
%end
%if queue
%if queue_flag
#SBATCH {{queue_flag}}={{queue}}
%end
%if not queue_flag
#SBATCH --partition={{queue}}
%end
%end
%if constraint
#SBATCH --constraint={{constraint}}
%end
%each directive
#SBATCH {{it}}
%end
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
%if elastic
# Without this option Slurm ends the whole job when a node fails.
#SBATCH --no-kill
%end
%if requeue
#SBATCH --requeue
#SBATCH --signal=B:USR1@{{warning_seconds}}
%end
%each note
# {{it}}
%end

%include environment

%if elastic
# horovodrun starts the ranks by steps of srun, one for each other node.
launch=(horovodrun -np {{ranks}}{{launcher_flags}})
%if requeue
# horovodrun puts the job back, here or, if this node is lost, on the other nodes.
export HOROVOD_MAX_REQUEUES="${HOROVOD_MAX_REQUEUES:-{{max_requeues}}}"
%end
%end
%if not elastic
# Every rank sees all GPUs of its node and chooses one by its local rank, so GPUs can copy to each other directly. The
# ranks get this script's variables, also after `sbatch --export=NONE`, which srun would take for its own option.
launch=(srun --export=ALL --ntasks-per-node={{ranks_per_node}} --kill-on-bad-exit=1{{launcher_flags}})
%if asks_for_mpi
%include mpi_of_srun
%end
%if gpus_per_node
launch+=(--gpu-bind=none)
%end
%if cpus_per_rank
launch+=(--cpus-per-task="$SLURM_CPUS_PER_TASK")  # srun of Slurm 22.05 to 23.02 does not take over --cpus-per-task
%if cpu_bind
# Each rank gets the cores beside its GPU.
launch+=(--cpu-bind="{{cpu_bind}}")
%end
%if not cpu_bind
launch+=(--cpu-bind=cores)
%end
%end
%if container
launch+=({{container}})
%end
%end
%if not requeue
exec "${launch[@]}" {{command}}
%end
%if requeue

# The ranks get a signal before the job's time is over. A program that has then saved its state ends with exit code 75,
# and the job goes back into the queue. In its next run the program goes on from its last checkpoint.
%include warned_ranks
if [ "$status" = 75 ]; then
  job=$SLURM_JOB_ID
  [ "$job" != "${SLURM_ARRAY_JOB_ID:-}" ] || job+=_$SLURM_ARRAY_TASK_ID  # the last task has the number of the array
  # A job that was never put back may have SLURM_RESTART_COUNT from the job that submitted it: Slurm knows its own.
  restarts=${SLURM_RESTART_COUNT:-0}
  if [[ $(scontrol show job "$job" 2>/dev/null) =~ [[:space:]]Restarts=([0-9]+) ]]; then restarts=${BASH_REMATCH[1]}; fi
  if [ "$restarts" -lt "${HOROVOD_MAX_REQUEUES:-{{max_requeues}}}" ]; then scontrol requeue "$job"; fi
fi
exit "$status"
%end
