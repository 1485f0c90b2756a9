#!/bin/bash
# Sierra: 4 x 4 ranks. Written by horovodrun --jobscript; submit it with `bsub FILE`.
#BSUB -J train
#BSUB -nnodes 4
#BSUB -W 12:00
#BSUB -G guests
#BSUB -q pbatch
#BSUB -o train.%J.out
#BSUB -e train.%J.err
# Do not set TMPDIR here: jsrun could not start anything.


# One resource set per node: every rank sees all GPUs of its node and chooses one by its local rank.
launch=(jsrun --nrs 4 --rs_per_host 1 --tasks_per_rs 4 --cpu_per_rs 40)
launch+=(--gpu_per_rs 4)
launch+=(--bind packed:10 --launch_distribution packed --exit_on_error 1 --smpiargs="-disable_gpu_hooks")
exec "${launch[@]}" python train.py --epochs 90
