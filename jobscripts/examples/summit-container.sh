#!/bin/bash
# Summit: 2 x 6 ranks. Written by horovodrun --jobscript; submit it with `bsub FILE`.
#BSUB -J train
#BSUB -nnodes 2
#BSUB -W 2:00
#BSUB -P ABC123
#BSUB -alloc_flags "smt4 gpudefault nvme"
#BSUB -o train.%J.out
#BSUB -e train.%J.err
# Do not set TMPDIR here: jsrun could not start anything. Home folders are read-only on the compute nodes.


# One resource set per node: every rank sees all GPUs of its node and chooses one by its local rank.
launch=(jsrun --nrs 2 --rs_per_host 1 --tasks_per_rs 6 --cpu_per_rs 42)
launch+=(--gpu_per_rs 6)
launch+=(--bind packed:7 --launch_distribution packed --exit_on_error 1 --smpiargs="-disable_gpu_hooks")
launch+=(apptainer exec --nv --bind "${MPI_ROOT:?is not set}:/host/mpi,$MPI_ROOT" horovod.sif)
exec "${launch[@]}" python train.py --epochs 90
