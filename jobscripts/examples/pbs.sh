#!/bin/bash
# A cluster with PBS: 2 x 4 ranks. Written by horovodrun --jobscript; submit it with qsub.
#PBS -N train
#PBS -l select=2:ncpus=16:mpiprocs=4
#PBS -l place=scatter
#PBS -l walltime=01:00:00
#PBS -j oe
#PBS -r y

cd "$PBS_O_WORKDIR" || exit

launch=(horovodrun -np 8)

# PBS sends no signal before the job's time is over, so this script does it. A program that has then saved its state
# ends with exit code 75, and the job goes back into the queue. In its next run the program goes on from its last
# checkpoint.
timeout --foreground --preserve-status --signal=USR1 3300 "${launch[@]}" python train.py --epochs 90
status=$?
starts=".train.$PBS_JOBID.starts"  # PBS does not tell a job how often it was put back
echo started >>"$starts"
if [ "$status" = 75 ] && [ "$(wc -l <"$starts")" -le "${HOROVOD_MAX_REQUEUES:-20}" ] &&
  qrerun "$PBS_JOBID"; then
  exit  # at many sites only operators may call qrerun; the job then ends with 75
fi
rm -f "$starts"
exit "$status"
