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

# Every rank sees all GPUs of its node and chooses one by its local rank, so GPUs can copy to each other directly. The
# ranks get this script's variables, also after `sbatch --export=NONE`, which srun would take for its own option.
launch=(srun --export=ALL --ntasks-per-node=2 --kill-on-bad-exit=1)
# Where srun by itself serves no PMI (MpiDefault), the ranks meet by PMIx or PMI-2, if srun has one of them.
if [ -z "${SLURM_MPI_TYPE:-}${HOROVOD_SHARED_DIR:-}" ] &&
  scontrol show config 2>/dev/null | grep -q '^MpiDefault *= *none'; then
  served=" $(srun --mpi=list 2>&1 | tr -cs '[:alnum:]_' ' ') "
  if [[ $served == *" pmix "* && $(horovodrun --can-pmix-be-used 2>/dev/null) == "pmix can be used"* ]]; then
    launch+=(--mpi=pmix)
  elif [[ $served == *" pmi2 "* ]]; then
    launch+=(--mpi=pmi2)
  fi
fi
launch+=(--cpus-per-task="$SLURM_CPUS_PER_TASK")  # srun of Slurm 22.05 to 23.02 does not take over --cpus-per-task
launch+=(--cpu-bind=cores)

# The ranks get a signal before the job's time is over. A program that has then saved its state ends with exit code 75,
# and the job goes back into the queue. In its next run the program goes on from its last checkpoint.
trap 'kill -USR1 "$ranks"' USR1
"${launch[@]}" python examples/large_model.py --steps 100000 --checkpoints large-model-checkpoints &
ranks=$!
while kill -0 "$ranks" 2>/dev/null; do
  wait "$ranks"  # a signal to this script also ends `wait`, while the ranks go on running
done
wait "$ranks"  # this second wait returns the exit code of the ranks
status=$?
if [ "$status" = 75 ]; then
  job=$SLURM_JOB_ID
  [ "$job" != "${SLURM_ARRAY_JOB_ID:-}" ] || job+=_$SLURM_ARRAY_TASK_ID  # the last task has the number of the array
  # A job that was never put back may have SLURM_RESTART_COUNT from the job that submitted it: Slurm knows its own.
  restarts=${SLURM_RESTART_COUNT:-0}
  if [[ $(scontrol show job "$job" 2>/dev/null) =~ [[:space:]]Restarts=([0-9]+) ]]; then restarts=${BASH_REMATCH[1]}; fi
  if [ "$restarts" -lt "${HOROVOD_MAX_REQUEUES:-50}" ]; then scontrol requeue "$job"; fi
fi
exit "$status"
