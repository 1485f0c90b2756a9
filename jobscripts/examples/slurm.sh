#!/bin/bash
# A cluster with Slurm: 2 x 2 ranks. Written by horovodrun --jobscript; submit it with sbatch.
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=1
#SBATCH --time=00:30:00
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append


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
exec "${launch[@]}" python train.py --epochs 90
