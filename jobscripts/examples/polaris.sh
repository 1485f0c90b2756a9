#!/bin/bash
# Polaris: 10 x 4 ranks. Written by horovodrun --jobscript; submit it with qsub.
#PBS -N train
#PBS -l select=10:system=polaris
#PBS -l place=scatter
#PBS -l walltime=06:00:00
#PBS -A MyProject
#PBS -q prod
#PBS -l filesystems=home:eagle
#PBS -j oe
#PBS -r n
# The queue prod takes jobs from 10 nodes on; --queue debug takes one or two for an hour.

cd "$PBS_O_WORKDIR" || exit
# shellcheck source=/dev/null
source '/home/me/my environment'/bin/activate
export CUDA_DEVICE_ORDER=PCI_BUS_ID

# Horovod binds the ranks to the cores beside their GPUs.
launch=(mpiexec -n 40 --ppn 4 --cpu-bind none)
exec "${launch[@]}" python train.py --epochs 90
