"""broadcast: gives the root's tensor to all ranks, in new tensors or in place."""
import torch

from horovod import _core, _ops
from horovod.common.operations import full_name_of, prepared, root_of
from horovod.common.process_sets import global_process_set
from horovod.torch._allreduce import allreduce
from horovod.torch._devices import ordinal_for
from horovod.torch._job import Average, Sum, rank
from horovod.torch._tensors import DTYPES, check_tensor, note_change, submit, wants_gradient


def _broadcast_async(tensor, output, root_rank, name, process_set):
    check_tensor(tensor, "broadcast", name)
    set_id = process_set._check_id()
    root_rank = root_of(root_rank, "broadcast")
    full_name, ordinal = full_name_of("broadcast", name, set_id), ordinal_for(tensor, set_id)
    found = prepared(name, (full_name, set_id, tensor.dtype, tensor.shape, root_rank, ordinal, "broadcast"), full_name,
                     _core.BROADCAST, DTYPES[tensor.dtype], tensor.shape, Sum, 1.0, 1.0, root_rank, set_id,
                     ordinal=ordinal)
    return submit(found, tensor, torch.empty_like(tensor) if output is None else output)


def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
    """Starts the copy of the root's tensor into a new tensor on every rank. Returns a handle.

    root_rank: the root's rank in the whole job, even if process_set is not the global set.
    """
    return _broadcast_async(tensor, None, root_rank, name, process_set)


def broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set):
    """Like broadcast_async, but in place."""
    handle = _broadcast_async(tensor, tensor, root_rank, name, process_set)
    note_change((tensor,))
    return handle


class HorovodBroadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        ctx.root_rank, ctx.process_set = root_rank, process_set
        return _ops.finish(broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx, gradient):
        reduced = allreduce(gradient.contiguous(), op=Average, process_set=ctx.process_set)
        return reduced if rank() == ctx.root_rank else reduced * 0, None, None, None


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """Returns the root's tensor as a new tensor. Differentiable."""
    if wants_gradient([tensor]):
        return HorovodBroadcast.apply(tensor, root_rank, name, process_set)
    return _ops.finish(broadcast_async(tensor, root_rank, name, process_set))


def broadcast_(tensor, root_rank, name=None, process_set=global_process_set):
    """Like broadcast, but in place and not differentiable."""
    return _ops.finish(broadcast_async_(tensor, root_rank, name, process_set))
