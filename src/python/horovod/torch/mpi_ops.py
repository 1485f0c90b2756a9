"""The collectives on torch tensors, all in this module. horovod/_ops.py has the parts that all frameworks share."""
from collections.abc import Mapping

from horovod import _core, _ops
from horovod.common.exceptions import HorovodInternalError  # noqa: F401  other modules import these names from here
from horovod.common.process_sets import (ProcessSet, add_process_set, global_process_set,  # noqa: F401
                                         remove_process_set)
from horovod.common.util import check_installed_version, gpu_available, num_rank_is_power_2  # noqa: F401
from horovod.torch import _devices
from horovod.torch import mpi_lib_v2 as mpi_lib  # noqa: F401
from horovod.torch._allgather import (HorovodAllgather, HorovodGroupedAllgather, allgather,  # noqa: F401
                                      allgather_async, grouped_allgather, grouped_allgather_async,
                                      sparse_allreduce_async)
from horovod.torch._allreduce import (HorovodAllreduce, HorovodGroupedAllreduce, allreduce, allreduce_,  # noqa: F401
                                      allreduce_async, allreduce_async_, grouped_allreduce, grouped_allreduce_,
                                      grouped_allreduce_async, grouped_allreduce_async_)
from horovod.torch._alltoall import HorovodAlltoall, alltoall, alltoall_async  # noqa: F401
from horovod.torch._broadcast import (HorovodBroadcast, broadcast, broadcast_, broadcast_async,  # noqa: F401
                                      broadcast_async_)
from horovod.torch._job import (  # noqa: F401
    Adasum, Average, Max, Min, Product, Sum, _basics, ccl_built, cross_rank, cross_size, cuda_built, ddl_built,
    gloo_built, gloo_enabled, handle_average_backwards_compatibility, init, is_homogeneous, is_initialized,
    local_device, local_rank, local_size, mpi_built, mpi_enabled, mpi_threads_supported, nccl_built, rank, rocm_built,
    shutdown, size, start_timeline, stop_timeline)
from horovod.torch._reducescatter import (HorovodGroupedReducescatter, HorovodReducescatter,  # noqa: F401
                                          grouped_reducescatter, grouped_reducescatter_async, reducescatter,
                                          reducescatter_async)
from horovod.torch.compression import Compression  # noqa: F401

poll = _ops.poll
synchronize = _ops.synchronize
synchronize_all = _ops.synchronize_all


def barrier(process_set=global_process_set):
    """Returns when every rank of the set has called it."""
    _ops.barrier(process_set._check_id())


def join(device=-1):
    """Tells all ranks that this rank has no more data. Returns when all ranks have joined: the rank that joined last.

    Until then this rank contributes zeros to every allreduce. Other collectives fail on the ranks that start them.
    device: the GPU on which it takes part in those of tensors on GPUs, if it has had no tensor on one yet; by default
    the one that torch.cuda.set_device() has made current, else hvd.local_device().
    """
    return _devices.join(device)


class _Handles(Mapping):
    """The operations that were started and not yet synchronised: handle -> output, None if the output is not known
    yet."""

    def __getitem__(self, handle):
        return _core.pending_outputs()[handle]

    def __iter__(self):
        return iter(_core.pending_outputs())

    def __len__(self):
        return len(_core.pending_outputs())


_handle_map = _Handles()
