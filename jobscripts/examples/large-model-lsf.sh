#!/bin/bash
# A cluster with LSF: 2 x 2 ranks. Written by horovodrun --jobscript; submit it with `bsub <FILE`.
#BSUB -J large_model
#BSUB -n 4
#BSUB -R "span[ptile=2]"
#BSUB -R "affinity[core(8)]"
#BSUB -W 4:00
#BSUB -o large_model.%J.out
#BSUB -e large_model.%J.err
#BSUB -wa USR1
#BSUB -wt 5
#BSUB -Q "99"

# shellcheck source=/dev/null
source .venv/bin/activate

launch=(horovodrun -np 4)

# The ranks get a signal before the job's time is over. A program that has then saved its state ends with exit code 75.
# The script then ends with the exit code that puts the job back into the queue. In its next run the program goes on
# from its last checkpoint.
trap 'kill -USR1 "$ranks"' USR1
"${launch[@]}" python examples/large_model.py --steps 100000 --checkpoints large-model-checkpoints &
ranks=$!
while kill -0 "$ranks" 2>/dev/null; do
  wait "$ranks"  # a signal to this script also ends `wait`, while the ranks go on running
done
wait "$ranks"  # this second wait returns the exit code of the ranks
status=$?
starts=".large_model.$LSB_JOBID.starts"  # LSF does not tell a job how often it was put back
echo started >>"$starts"
if [ "$status" = 75 ] && [ "$(wc -l <"$starts")" -le "${HOROVOD_MAX_REQUEUES:-50}" ]; then
  exit 99
fi
rm -f "$starts"
exit "$status"
