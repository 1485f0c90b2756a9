#!/bin/bash
# A cluster with LSF: 2 x 4 ranks. Written by horovodrun --jobscript; submit it with `bsub <FILE`.
#BSUB -J train
#BSUB -n 8
#BSUB -R "span[ptile=4]"
#BSUB -R "affinity[core(4)]"
#BSUB -W 1:30
#BSUB -q normal
#BSUB -o train.%J.out
#BSUB -e train.%J.err


launch=(horovodrun -np 8)
exec "${launch[@]}" python train.py --epochs 90
