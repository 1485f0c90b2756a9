#!/bin/bash
# A cluster with Slurm: 2 x 2 ranks. Written by horovodrun --jobscript; submit it with sbatch.
#SBATCH --job-name=large_model
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@300

# shellcheck source=/dev/null
source .venv/bin/activate

# Every rank sees all GPUs of its node and takes its own: peers in one cgroup keep their direct links. Horovod binds the
# ranks to the cores beside their GPUs.
launch=(srun --ntasks-per-node=2 --cpu-bind=none --kill-on-bad-exit=1)
launch+=(--cpus-per-task="$SLURM_CPUS_PER_TASK")  # srun of Slurm 22.05 to 23.02 does not inherit it

# The ranks are told of the end before it comes. A program that has saved then ends with exit code 75, the job goes back
# into the queue, and the program goes on from its last checkpoint.
trap 'kill -USR1 "$ranks"' USR1
"${launch[@]}" python examples/large_model.py --steps 100000 --checkpoints large-model-checkpoints &
ranks=$!
while kill -0 "$ranks" 2>/dev/null; do
  wait "$ranks"  # a signal ends it, too; the ranks go on
done
wait "$ranks"  # bash keeps the status of ranks that have ended
status=$?
if [ "$status" = 75 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt "${HOROVOD_MAX_REQUEUES:-50}" ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
