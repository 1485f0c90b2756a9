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
%if requeue
#SBATCH --requeue
#SBATCH --signal=B:USR1@{{warning_seconds}}
%end
%each note
# {{it}}
%end

%include environment

# Every rank sees all GPUs of its node and takes its own: peers in one cgroup keep their direct links. Horovod binds the
# ranks to the cores beside their GPUs.
launch=(srun --ntasks-per-node={{ranks_per_node}} --cpu-bind=none --kill-on-bad-exit=1{{launcher_flags}})
%if gpus_per_node
launch+=(--gpu-bind=none)
%end
%if cpus_per_rank
launch+=(--cpus-per-task="$SLURM_CPUS_PER_TASK")  # srun of Slurm 22.05 to 23.02 does not inherit it
%end
%if container
launch+=({{container}})
%end
%if not requeue
exec "${launch[@]}" {{command}}
%end
%if requeue

# The ranks are told of the end before it comes. A program that has saved then ends with exit code 75, the job goes back
# into the queue, and the program goes on from its last checkpoint.
%include warned_ranks
if [ "$status" = 75 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt "${HOROVOD_MAX_REQUEUES:-{{max_requeues}}}" ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
%end
