"""alltoall: every rank sends rows of its tensor to every rank."""
import torch

from horovod import _core, _ops
from horovod.common.operations import full_name_of, place_in, prepared, read_splits
from horovod.common.process_sets import global_process_set
from horovod.torch._devices import ordinal_for
from horovod.torch._tensors import (DTYPES, check_tensor, kept_result, rows_of, source_of, stream_of, wants_gradient)


def _read_splits(splits, rows, size):
    """As read_splits; also of a tensor."""
    if isinstance(splits, torch.Tensor):
        if splits.dtype != torch.int32 or splits.dim() != 1:
            raise ValueError(f"alltoall: expected splits of torch.int32 in one dimension, found {splits.dtype} in "
                             f"{splits.dim()}")
        splits = splits.tolist()
    return read_splits(splits, rows, size)


def alltoall_async(tensor, splits=None, name=None, process_set=global_process_set):
    """Starts sending rows of the tensor to every rank. Returns a handle; its result is (output, received_splits).

    splits: the number of rows for each rank of the set, in the order of ranks; further rows are not sent. None: equal
    parts. received_splits: the number of rows that came from each rank, as int32, on the device of `splits` if that is
    a tensor.
    """
    check_tensor(tensor, "alltoall", name)
    set_id = process_set._check_id()
    _, size = place_in(set_id)
    rows = rows_of(tensor)
    parts = _read_splits(splits, rows, size) if tensor.dim() else None  # a scalar fails when the ranks compare
    full_name, ordinal = full_name_of("alltoall", name, set_id), ordinal_for(tensor, set_id)
    found = prepared(name, (full_name, set_id, tensor.dtype, tensor.dim(), tensor.shape[1:], ordinal, "alltoall"),
                     full_name, _core.ALLTOALL, DTYPES[tensor.dtype], tensor.shape, process_set=set_id,
                     ordinal=ordinal)
    device = splits.device if isinstance(splits, torch.Tensor) else "cpu"
    source, stream = source_of(found, tensor), stream_of(found)

    def result(started, like):
        received = _core.received_splits(started, 0, size)
        return kept_result(started, 0, like, stream), torch.tensor(received, dtype=torch.int32, device=device)

    return _ops.submit(found, source.data_ptr(), 0, rows, tensor, source, result, parts)


class HorovodAlltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        output, received_splits = _ops.finish(alltoall_async(tensor, splits, name, process_set))
        ctx.received_splits, ctx.rows, ctx.process_set = received_splits, rows_of(tensor), process_set
        ctx.mark_non_differentiable(received_splits)
        return output, received_splits

    @staticmethod
    def backward(ctx, gradient, _):
        sent_back, _ = alltoall(gradient.contiguous(), splits=ctx.received_splits, process_set=ctx.process_set)
        left_over = ctx.rows - rows_of(sent_back)
        if left_over:
            sent_back = torch.cat([sent_back, sent_back.new_zeros((left_over, *sent_back.shape[1:]))])
        return sent_back, None, None, None


def alltoall(tensor, splits=None, name=None, process_set=global_process_set):
    """Returns the rows that the ranks sent to this one, in the order of ranks; with splits: (output, received_splits).

    Differentiable. See alltoall_async.
    """
    if wants_gradient([tensor]):
        output, received_splits = HorovodAlltoall.apply(tensor, splits, name, process_set)
    else:
        output, received_splits = _ops.finish(alltoall_async(tensor, splits, name, process_set))
    return output if splits is None else (output, received_splits)
