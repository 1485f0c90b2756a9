#!/bin/bash
# Frontier: 8 x 8 ranks. Written by horovodrun --jobscript; submit it with sbatch.
#SBATCH --job-name=train
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --gpus-per-node=8
#SBATCH --time=02:00:00
#SBATCH --account=abc123
#SBATCH --partition=batch
#SBATCH --exclusive
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
# Tensors of AMD GPUs travel through host memory: this version has no kernels for them.


# Every rank sees all GPUs of its node and chooses one by its local rank, so GPUs can copy to each other directly.
launch=(srun --ntasks-per-node=8 --kill-on-bad-exit=1)
launch+=(--gpu-bind=none)
launch+=(--cpus-per-task="$SLURM_CPUS_PER_TASK")  # srun of Slurm 22.05 to 23.02 does not take over --cpus-per-task
# Each rank gets the cores beside its GPU.
launch+=(--cpu-bind="mask_cpu:fe000000000000,fe00000000000000,fe0000,fe000000,fe,fe00,fe00000000,fe0000000000")
exec "${launch[@]}" python train.py --epochs 90
