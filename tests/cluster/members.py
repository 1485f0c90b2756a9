"""A rank of tests/cluster/matrix. mpi4py starts MPI before horovod is imported."""
import os
import sys
import traceback

from mpi4py import MPI

import torch
import horovod.torch as hvd

world = MPI.COMM_WORLD
hosts = os.environ["HVD_HOSTS"].split(",")
assert world.size == len(hosts), f"mpi4py knows {world.size} of {len(hosts)} ranks"


def end_all_ranks(*exception):
    traceback.print_exception(*exception)
    sys.stderr.flush()
    world.Abort(1)


sys.excepthook = end_all_ranks


def check(members, **arguments):
    """Is called on the ranks in `members`, which are ranks of the world in the order of the new job's ranks."""
    hvd.init(**arguments)
    assert (hvd.rank(), hvd.size()) == (members.index(world.rank), len(members))
    here = [member for member in members if hosts[member] == hosts[world.rank]]
    assert (hvd.local_rank(), hvd.local_size()) == (here.index(world.rank), len(here))
    assert len(members) == 1 or hvd.mpi_threads_supported()
    for step in range(5):
        total = hvd.allreduce(torch.full((1000,), float(world.rank + step)), op=hvd.Sum, name="gradient")
        assert total.tolist() == [float(sum(members) + step * len(members))] * 1000
        gathered = hvd.allgather(torch.tensor([world.rank]), name="who")
        assert gathered.tolist() == members
    hvd.shutdown()


everybody = list(range(world.size))
check(everybody, comm=world)
assert world.alltoall([(world.rank, to) for to in everybody]) == [(sender, world.rank) for sender in everybody]
if world.size > 1:
    # Two disjoint halves at the same time. In the layout cyclic each half has ranks on all nodes.
    half = world.Split(world.rank % 2, -world.rank)
    check([rank for rank in reversed(everybody) if rank % 2 == world.rank % 2], comm=half)
    half.Free()
    # First a subset as a communicator, then a list of ranks in another order. The other ranks stay outside.
    subset = world.Split(0 if world.rank < world.size - 1 else MPI.UNDEFINED)
    if subset != MPI.COMM_NULL:
        check(everybody[:-1], comm=subset)
    chosen = [world.size - 1, 0]
    if world.rank in chosen:
        check(chosen, comm=chosen)
    world.Barrier()
check(everybody)  # without arguments: the job is the one that the launcher or this MPI knows
print("done", flush=True)
