#!/bin/bash
# Summit: 4 x 6 ranks. Written by horovodrun --jobscript; submit it with `bsub FILE`.
#BSUB -J train
#BSUB -nnodes 4
#BSUB -W 2:00
#BSUB -P ABC123
#BSUB -alloc_flags "smt4 gpudefault nvme"
#BSUB -o train.%J.out
#BSUB -e train.%J.err
#BSUB -wa USR1
#BSUB -wt 5
#BSUB -Q "99"
# Do not set TMPDIR here: jsrun could not start anything. Home folders are read-only on the compute nodes.

module load horovod

# One resource set per node: every rank sees all GPUs of its node and chooses one by its local rank.
launch=(jsrun --nrs 4 --rs_per_host 1 --tasks_per_rs 6 --cpu_per_rs 42)
launch+=(--gpu_per_rs 6)
launch+=(--bind packed:7 --launch_distribution packed --exit_on_error 1 --smpiargs="-disable_gpu_hooks")

# The ranks get a signal before the job's time is over. A program that has then saved its state ends with exit code 75.
# The script then ends with the exit code that puts the job back into the queue. In its next run the program goes on
# from its last checkpoint.
trap 'kill -USR1 "$ranks"' USR1
"${launch[@]}" python train.py --epochs 90 &
ranks=$!
while kill -0 "$ranks" 2>/dev/null; do
  wait "$ranks"  # a signal to this script also ends `wait`, while the ranks go on running
done
wait "$ranks"  # this second wait returns the exit code of the ranks
status=$?
starts=".train.$LSB_JOBID.starts"  # LSF does not tell a job how often it was put back
echo started >>"$starts"
if [ "$status" = 75 ] && [ "$(wc -l <"$starts")" -le "${HOROVOD_MAX_REQUEUES:-20}" ]; then
  exit 99
fi
rm -f "$starts"
exit "$status"
