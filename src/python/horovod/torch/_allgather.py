"""allgather and its variants: a result has the rows of all ranks' tensors. Also reduces sparse tensors."""
import torch

from horovod import _core, _ops
from horovod.common.operations import full_name_of, names_of_group, prepared
from horovod.common.process_sets import global_process_set
from horovod.torch._allreduce import allreduce, grouped_allreduce
from horovod.torch._devices import ordinal_for, ordinal_for_all
from horovod.torch._job import Average, Sum
from horovod.torch._tensors import (DTYPES, check_group, check_tensor, kept_result, rows_of, source_of, stream_of,
                                    wants_gradient)


def _operation(tensor, name, full_name, set_id, ordinal, group=None):
    """Makes the key of the operation. The number of rows is not part of the key, because it may differ between ranks
    and calls."""
    return prepared(name, (full_name, set_id, tensor.dtype, tensor.dim(), tensor.shape[1:], ordinal), full_name,
                    _core.ALLGATHER, DTYPES[tensor.dtype], tensor.shape, process_set=set_id, group=group,
                    ordinal=ordinal)


def allgather_async(tensor, name=None, process_set=global_process_set):
    """Starts the concatenation of all ranks' tensors along the first dimension, whose length may differ. Returns a
    handle."""
    check_tensor(tensor, "allgather", name)
    set_id = process_set._check_id()
    found = _operation(tensor, name, full_name_of("allgather", name, set_id), set_id, ordinal_for(tensor, set_id))
    source, stream = source_of(found, tensor), stream_of(found)
    return _ops.submit(found, source.data_ptr(), 0, rows_of(tensor), tensor, source,
                       lambda started, like: kept_result(started, 0, like, stream))


class HorovodAllgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, process_set):
        handle = allgather_async(tensor, name, process_set)
        ctx.rows, ctx.process_set = rows_of(tensor), process_set
        return _ops.finish(handle)

    @staticmethod
    def backward(ctx, gradient):
        process_set = ctx.process_set
        reduced = allreduce(gradient.contiguous(), op=Average, process_set=process_set)
        counts = allgather(_count(ctx.rows), process_set=process_set)
        return reduced.narrow(0, int(counts[:process_set.rank()].sum()), ctx.rows), None, None


def _count(rows):
    return torch.tensor([rows], dtype=torch.int32, device="cpu")


def allgather(tensor, name=None, process_set=global_process_set):
    """Returns all ranks' tensors, concatenated along the first dimension in the order of the ranks. Differentiable."""
    if wants_gradient([tensor]):
        return HorovodAllgather.apply(tensor, name, process_set)
    return _ops.finish(allgather_async(tensor, name, process_set))


def grouped_allgather_async(tensors, name=None, process_set=global_process_set):
    """Starts the allgather of several tensors, which become ready together. Returns one handle for all of them."""
    tensors = list(tensors)
    check_group(tensors, "grouped_allgather", name)
    set_id = process_set._check_id()
    group, names = names_of_group("grouped_allgather", name, len(tensors), set_id)
    ordinal = ordinal_for_all(tensors, set_id)
    operations = [_operation(tensor, name, full_name, set_id, ordinal, group)
                  for tensor, full_name in zip(tensors, names)]
    sources, stream = list(map(source_of, operations, tensors)), stream_of(operations[0])
    members = [(operation, source.data_ptr(), 0, rows_of(source)) for operation, source in zip(operations, sources)]
    return _ops.submit_group(
        members, tensors, sources,
        lambda started, likes: tuple(kept_result(started, index, like, stream) for index, like in enumerate(likes)))


class HorovodGroupedAllgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, process_set, *tensors):
        handle = grouped_allgather_async(tensors, name, process_set)
        ctx.rows, ctx.process_set = [rows_of(tensor) for tensor in tensors], process_set
        return _ops.finish(handle)

    @staticmethod
    def backward(ctx, *gradients):
        process_set = ctx.process_set
        reduced = grouped_allreduce([gradient.contiguous() for gradient in gradients], op=Average,
                                    process_set=process_set)
        counts = grouped_allgather([_count(rows) for rows in ctx.rows], process_set=process_set)
        own = process_set.rank()
        return (None, None, *(gradient.narrow(0, int(count[:own].sum()), rows)
                              for gradient, count, rows in zip(reduced, counts, ctx.rows)))


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    """Returns the tuple of the gathered tensors. Differentiable."""
    tensors = list(tensors)
    if wants_gradient(tensors):
        return HorovodGroupedAllgather.apply(name, process_set, *tensors)
    return _ops.finish(grouped_allgather_async(tensors, name, process_set))


def sparse_allreduce_async(tensor, name, op, process_set=global_process_set):
    """Starts the reduction (Sum or Average) of a sparse tensor. Returns a function that waits and returns the
    result; its attribute `handles` has the handles that it waits for."""
    if op not in (Average, Sum):
        raise NotImplementedError("sparse_allreduce_async: op is hvd.Average or hvd.Sum")
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.sparse_coo:
        found = tensor.layout if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise ValueError(f"sparse_allreduce_async of tensor {name!r}: expected a tensor of layout torch.sparse_coo, "
                         f"found {found}; use allreduce_async, or tensor.to_sparse()")
    tensor = tensor if tensor.is_coalesced() else tensor.coalesce()
    indices = allgather_async(tensor.indices().transpose(0, 1).contiguous(), name=f"{name}.indices",
                              process_set=process_set)
    values = allgather_async(tensor.values().contiguous(), name=f"{name}.values", process_set=process_set)

    def wait():
        all_values = _ops.synchronize(values)
        all_indices = _ops.synchronize(indices)
        if op == Average:
            all_values = all_values / process_set.size()
        return torch.sparse_coo_tensor(all_indices.transpose(0, 1), all_values, tensor.size(), check_invariants=False)

    wait.handles = [indices, values]
    return wait
