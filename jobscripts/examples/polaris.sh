#!/bin/bash
# Polaris: 10 x 4 ranks. Written by horovodrun --jobscript; submit it with qsub.
#PBS -N train
#PBS -l select=10:system=polaris
#PBS -l place=scatter
#PBS -l walltime=03:00:00
#PBS -A MyProject
#PBS -q prod
#PBS -l filesystems=home:eagle
#PBS -j oe
#PBS -r n
# The queue prod takes jobs from 10 nodes on. preemptable takes smaller ones and may end them at any time.
# For an hour, --queue debug takes one or two nodes and --queue debug-scaling up to 10.

cd "$PBS_O_WORKDIR" || exit
# shellcheck source=/dev/null
source '/home/me/my environment'/bin/activate
export CUDA_DEVICE_ORDER=PCI_BUS_ID

# The ranks find each other by PMIx.
launch=(mpiexec --pmi=pmix -n 40 --ppn 4)
# Each rank gets the cores beside its GPU.
launch+=(--cpu-bind "list:24-31,56-63:16-23,48-55:8-15,40-47:0-7,32-39")
exec "${launch[@]}" python train.py --epochs 90
