#!/bin/bash
# A cluster with Slurm: 2 x 4 ranks. Written by horovodrun --jobscript; submit it with sbatch.
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --time=08:00:00
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append


# Every rank sees all GPUs of its node and chooses one by its local rank, so GPUs can copy to each other directly. The
# ranks get this script's variables, also after `sbatch --export=NONE`, which srun would take for its own option.
launch=(srun --export=ALL --ntasks-per-node=4 --kill-on-bad-exit=1)
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
launch+=(--gpu-bind=none)
launch+=(apptainer exec --nv horovod.sif)
exec "${launch[@]}" python train.py --epochs 90
