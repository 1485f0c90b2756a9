#!/bin/bash
# A cluster with Slurm: 2 x 4 ranks. Written by horovodrun --jobscript; submit it with sbatch.
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --time=08:00:00
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append


# Every rank sees all GPUs of its node and chooses one by its local rank, so GPUs can copy to each other directly.
launch=(srun --ntasks-per-node=4 --kill-on-bad-exit=1)
launch+=(--gpu-bind=none)
launch+=(apptainer exec --nv horovod.sif)
exec "${launch[@]}" python train.py --epochs 90
