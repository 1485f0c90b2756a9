#!/bin/bash
# A cluster with Slurm: 2 x 2 ranks. Written by horovodrun --jobscript; submit it with sbatch.
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=1
#SBATCH --time=00:30:00
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append


# Every rank sees all GPUs of its node and chooses one by its local rank, so GPUs can copy to each other directly.
launch=(srun --ntasks-per-node=2 --kill-on-bad-exit=1)
launch+=(--cpus-per-task="$SLURM_CPUS_PER_TASK")  # srun of Slurm 22.05 to 23.02 does not take over --cpus-per-task
launch+=(--cpu-bind=cores)
exec "${launch[@]}" python train.py --epochs 90
