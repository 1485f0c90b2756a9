"""The collectives on torch tensors. What is common to all frameworks is in horovod/_ops.py."""
import operator

import torch

from horovod import _core, _ops
from horovod.common.basics import HorovodBasics
from horovod.common.exceptions import HorovodInternalError  # noqa: F401  others import these names from here, too
from horovod.common.process_sets import (ProcessSet, add_process_set, global_process_set,  # noqa: F401
                                         remove_process_set)
from horovod.common.util import (check_installed_version, get_average_backwards_compatibility_fun,  # noqa: F401
                                 gpu_available, num_rank_is_power_2)
from horovod.torch._tensors import (DTYPES, check_tensor, full_name_of, group_names, prepared, submit, submit_group,
                                    wants_gradient)
from horovod.torch.compression import Compression

_basics = HorovodBasics(__file__)

init = _basics.init
shutdown = _basics.shutdown
is_initialized = _basics.is_initialized
is_homogeneous = _basics.is_homogeneous
start_timeline = _basics.start_timeline
stop_timeline = _basics.stop_timeline
size = _basics.size
local_size = _basics.local_size
cross_size = _basics.cross_size
rank = _basics.rank
local_rank = _basics.local_rank
cross_rank = _basics.cross_rank
mpi_threads_supported = _basics.mpi_threads_supported
mpi_enabled = _basics.mpi_enabled
mpi_built = _basics.mpi_built
gloo_enabled = _basics.gloo_enabled
gloo_built = _basics.gloo_built
nccl_built = _basics.nccl_built
ddl_built = _basics.ddl_built
ccl_built = _basics.ccl_built
cuda_built = _basics.cuda_built
rocm_built = _basics.rocm_built

Average = _basics.Average
Sum = _basics.Sum
Adasum = _basics.Adasum
Min = _basics.Min
Max = _basics.Max
Product = _basics.Product

poll = _ops.poll
synchronize = _ops.synchronize
synchronize_all = _ops.synchronize_all


class _ReduceOps:
    Average = Average
    Sum = Sum


handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_ReduceOps)


# ---- allreduce --------------------------------------------------------------------------------------------------


def _check_reduction(op, verb):
    if op == Adasum:
        raise NotImplementedError(f"{verb}: op=hvd.Adasum is not part of this version of Horovod yet; "
                                  "use hvd.Average or hvd.Sum")
    if op not in (Average, Sum, Min, Max, Product):
        raise ValueError(f"{verb}: op is one of hvd.Average, Sum, Min, Max, Product, not {op!r}")


def _allreduce_async(tensor, in_place, name, average, op, prescale_factor, postscale_factor, process_set):
    """Starts an allreduce in place or into a new tensor."""
    if average is None:
        handle = _core.start_again(tensor, in_place, name, op, prescale_factor, postscale_factor, process_set)
        if handle is not None:
            return handle
    op = handle_average_backwards_compatibility(op, average)
    return _start_first_allreduce(tensor, in_place, name, op, prescale_factor, postscale_factor, process_set)


def _start_first_allreduce(tensor, in_place, name, op, prescale_factor, postscale_factor, process_set):
    check_tensor(tensor, "allreduce", name)
    _check_reduction(op, "allreduce")
    process_set._check_id()
    dtype, shape = tensor.dtype, tensor.shape
    full_name = full_name_of("allreduce", name)
    found = prepared(name, (full_name, dtype, shape, op, prescale_factor, postscale_factor), full_name,
                     _core.ALLREDUCE, DTYPES[dtype], shape, op, prescale_factor, postscale_factor)
    if name is not None and tensor.is_cpu:
        _ops.remember(name, _core.Known(found, tensor, torch.empty_like, op, prescale_factor, postscale_factor,
                                        process_set))
    return submit(found, tensor, tensor if in_place else torch.empty_like(tensor))


def allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                    process_set=global_process_set):
    """Starts the reduction of a tensor over all ranks into a new tensor; returns a handle for poll and synchronize.

    The input must not change before synchronize has returned. Operations are matched between ranks by name; without
    one, by the order in which they are started. op: Average (default), Sum, Min, Max, Product.
    """
    return _allreduce_async(tensor, False, name, average, op, prescale_factor, postscale_factor, process_set)


def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                     process_set=global_process_set):
    """As allreduce_async, in place."""
    if average is None:  # what _allreduce_async does first; here it saves a tenth of a step of tiny gradients
        handle = _core.start_again(tensor, True, name, op, prescale_factor, postscale_factor, process_set)
        if handle is not None:
            return handle
    return _allreduce_async(tensor, True, name, average, op, prescale_factor, postscale_factor, process_set)


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, *how):
        ctx.how = how
        result = _ops.finish(_allreduce_async(tensor, False, name, None, *how))
        if how[0] not in (Average, Sum):
            ctx.save_for_backward(tensor, result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        op, prescale_factor, postscale_factor, process_set = ctx.how
        if ctx.saved_tensors:
            return (_gradient_by_values(gradient, *ctx.saved_tensors, *ctx.how),) + (None,) * 5
        return (allreduce(gradient.contiguous(), op=op, prescale_factor=prescale_factor,
                          postscale_factor=postscale_factor, process_set=process_set),) + (None,) * 5


def _gradient_by_values(gradient, tensor, result, op, prescale_factor, postscale_factor, process_set):
    """The gradient of this rank's tensor through Min, Max or Product, as of one process that holds all ranks' tensors.

    Min and Max: of the ranks that hold the extremum, in equal shares. Product: times the product of all others.
    """
    def over_ranks(x, op):
        return allreduce(x.contiguous(), op=op, process_set=process_set)

    gradient = over_ranks(gradient, Sum)
    if op == Product and (result != 0).all():  # found alike on all ranks
        return gradient * (result / tensor)
    scaled = tensor if prescale_factor == 1.0 else tensor * prescale_factor
    if op == Product:
        is_zero = scaled == 0
        zeros = over_ranks(is_zero.to(torch.int32), Sum)
        others = over_ranks(torch.where(is_zero, torch.ones_like(scaled), scaled), Product)
        # Where this rank has the only zero it is all of them; otherwise they are none of it, or have a zero, too.
        share = torch.where(is_zero, others, others / scaled) * (zeros == is_zero)
    else:
        extremum = result if prescale_factor == postscale_factor == 1.0 else over_ranks(scaled, op)
        holds = scaled == extremum
        share = (holds / over_ranks(holds.to(torch.int32), Sum)).to(gradient.dtype)
    return gradient * share * (prescale_factor * postscale_factor)


def allreduce(tensor, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0,
              postscale_factor=1.0, process_set=global_process_set):
    """The tensor reduced over all ranks, in a new tensor. Differentiable, as in one process.

    The gradient is that of the sum of what the ranks compute from the result.
    """
    op = handle_average_backwards_compatibility(op, average)
    compressed, context = compression.compress(tensor)
    if wants_gradient([compressed]):
        reduced = _Allreduce.apply(compressed, name, op, prescale_factor, postscale_factor, process_set)
    else:
        reduced = _ops.finish(
            _allreduce_async(compressed, False, name, None, op, prescale_factor, postscale_factor, process_set))
    return compression.decompress(reduced, context)


def allreduce_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
               process_set=global_process_set):
    """As allreduce, in place (and not differentiable)."""
    return _ops.finish(allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set))


def _grouped_allreduce_async(tensors, in_place, name, average, op, prescale_factor, postscale_factor, process_set):
    tensors = tuple(tensors)
    known_as = None if name is None else f"{name}#{len(tensors)}"  # not to be mistaken for a tensor's name
    if average is None:
        handle = _core.start_group_again(tensors, in_place, known_as, op, prescale_factor, postscale_factor,
                                         process_set)
        if handle is not None:
            return handle
    op = handle_average_backwards_compatibility(op, average)
    if not tensors:
        raise ValueError("grouped_allreduce: expected at least one tensor, found an empty list")
    for tensor in tensors:
        check_tensor(tensor, "grouped_allreduce", name)
    _check_reduction(op, "grouped_allreduce")
    process_set._check_id()
    operations = []
    for tensor, full_name in zip(tensors, group_names("grouped_allreduce", name, len(tensors))):
        key = (full_name, tensor.dtype, tensor.shape, op, prescale_factor, postscale_factor)
        operations.append(prepared(name, key, full_name, _core.ALLREDUCE, DTYPES[tensor.dtype], tensor.shape, op,
                                   prescale_factor, postscale_factor))
    if name is not None and all(tensor.is_cpu for tensor in tensors):
        _ops.remember(known_as, tuple(
            _core.Known(operation, tensor, torch.empty_like, op, prescale_factor, postscale_factor, process_set)
            for operation, tensor in zip(operations, tensors)))
    return submit_group(operations, tensors, tensors if in_place else tuple(map(torch.empty_like, tensors)))


def grouped_allreduce_async(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                            process_set=global_process_set):
    """Starts the reduction of several tensors, which become ready together; one handle for all of them."""
    return _grouped_allreduce_async(tensors, False, name, average, op, prescale_factor, postscale_factor, process_set)


def grouped_allreduce_async_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                             process_set=global_process_set):
    """As grouped_allreduce_async, in place."""
    return _grouped_allreduce_async(tensors, True, name, average, op, prescale_factor, postscale_factor, process_set)


class _GroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, how, *tensors):
        ctx.how = how
        results = _ops.finish(_grouped_allreduce_async(tensors, False, name, None, *how))
        if how[0] not in (Average, Sum):
            ctx.save_for_backward(*tensors, *results)
        return results

    @staticmethod
    def backward(ctx, *gradients):
        op, prescale_factor, postscale_factor, process_set = ctx.how
        if ctx.saved_tensors:
            values = zip(gradients, ctx.saved_tensors, ctx.saved_tensors[len(gradients):])
            return (None, None, *(_gradient_by_values(*each, *ctx.how) for each in values))
        reduced = grouped_allreduce([gradient.contiguous() for gradient in gradients], op=op,
                                    prescale_factor=prescale_factor, postscale_factor=postscale_factor,
                                    process_set=process_set)
        return (None, None, *reduced)


def grouped_allreduce(tensors, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0,
                      postscale_factor=1.0, process_set=global_process_set):
    """The list of the tensors reduced over all ranks. Differentiable."""
    op = handle_average_backwards_compatibility(op, average)
    tensors = list(tensors)
    compressed, contexts = zip(*[compression.compress(tensor) for tensor in tensors]) if tensors else ((), ())
    how = (op, prescale_factor, postscale_factor, process_set)
    if wants_gradient(compressed):
        reduced = _GroupedAllreduce.apply(name, how, *compressed)
    else:
        reduced = _ops.finish(_grouped_allreduce_async(compressed, False, name, None, *how))
    return [compression.decompress(tensor, context) for tensor, context in zip(reduced, contexts)]


def grouped_allreduce_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                       process_set=global_process_set):
    """As grouped_allreduce, in place (and not differentiable); returns the tensors as a tuple."""
    return _ops.finish(
        grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set))


def sparse_allreduce_async(tensor, name, op, process_set=global_process_set):
    """Starts the reduction (Sum or Average) of a sparse tensor; returns a function that waits, and gives the result."""
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
        all_values = synchronize(values)
        all_indices = synchronize(indices)
        if op == Average:
            all_values = all_values / process_set.size()
        return torch.sparse_coo_tensor(all_indices.transpose(0, 1), all_values, tensor.size(), check_invariants=False)

    return wait


# ---- allgather --------------------------------------------------------------------------------------------------


def _allgather_operation(tensor, name, full_name):
    """Its rows may differ between ranks and calls, so they are no part of the key."""
    return prepared(name, (full_name, tensor.dtype, tensor.dim(), tensor.shape[1:]), full_name, _core.ALLGATHER,
                    DTYPES[tensor.dtype], tensor.shape)


def _rows(tensor):
    return tensor.shape[0] if tensor.dim() else 0


def _gathered(started, index, like):
    """The index-th result of an allgather that is done, where its input lies."""
    output = torch.empty(_core.result_shape(started, index), dtype=like.dtype, device="cpu")
    _core.result_copy(started, index, output.data_ptr(), output.numel() * output.element_size())
    return output if like.is_cpu else output.to(like.device)


def allgather_async(tensor, name=None, process_set=global_process_set):
    """Starts the concatenation of all ranks' tensors along the first dimension, which may differ; returns a handle."""
    check_tensor(tensor, "allgather", name)
    process_set._check_id()
    found = _allgather_operation(tensor, name, full_name_of("allgather", name))
    host = tensor if tensor.is_cpu else tensor.detach().cpu()
    return _ops.submit(found, host.data_ptr(), 0, _rows(tensor), tensor, host,
                       lambda started, like: _gathered(started, 0, like))


def _own_rows(gradient, rows, process_set):
    """Of a gathered gradient the rows that this rank gave."""
    counts = allgather(torch.tensor([rows], dtype=torch.int32, device="cpu"), process_set=process_set)
    first = int(counts[:process_set.rank()].sum())
    return gradient.narrow(0, first, rows)


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, process_set):
        handle = allgather_async(tensor, name, process_set)
        ctx.rows, ctx.process_set = _rows(tensor), process_set
        return _ops.finish(handle)

    @staticmethod
    def backward(ctx, gradient):
        reduced = allreduce(gradient.contiguous(), op=Average, process_set=ctx.process_set)
        return _own_rows(reduced, ctx.rows, ctx.process_set), None, None


def allgather(tensor, name=None, process_set=global_process_set):
    """All ranks' tensors, concatenated along the first dimension in the order of ranks. Differentiable."""
    if wants_gradient([tensor]):
        return _Allgather.apply(tensor, name, process_set)
    return _ops.finish(allgather_async(tensor, name, process_set))


def grouped_allgather_async(tensors, name=None, process_set=global_process_set):
    """Starts the allgather of several tensors, which become ready together; one handle for all of them."""
    tensors = list(tensors)
    if not tensors:
        raise ValueError("grouped_allgather: expected at least one tensor, found an empty list")
    for tensor in tensors:
        check_tensor(tensor, "grouped_allgather", name)
    process_set._check_id()
    names = group_names("grouped_allgather", name, len(tensors))
    hosts = [tensor if tensor.is_cpu else tensor.detach().cpu() for tensor in tensors]
    members = [(_allgather_operation(tensor, name, full_name), host.data_ptr(), 0, _rows(tensor))
               for tensor, host, full_name in zip(tensors, hosts, names)]
    return _ops.submit_group(
        members, tensors, hosts,
        lambda started, likes: tuple(_gathered(started, index, like) for index, like in enumerate(likes)))


class _GroupedAllgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, process_set, *tensors):
        handle = grouped_allgather_async(tensors, name, process_set)
        ctx.rows, ctx.process_set = [_rows(tensor) for tensor in tensors], process_set
        return _ops.finish(handle)

    @staticmethod
    def backward(ctx, *gradients):
        process_set = ctx.process_set
        reduced = grouped_allreduce([gradient.contiguous() for gradient in gradients], op=Average,
                                    process_set=process_set)
        counts = grouped_allgather([torch.tensor([rows], dtype=torch.int32, device="cpu") for rows in ctx.rows],
                                   process_set=process_set)
        own = process_set.rank()
        return (None, None, *(gradient.narrow(0, int(count[:own].sum()), rows)
                              for gradient, count, rows in zip(reduced, counts, ctx.rows)))


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    """The tuple of the tensors gathered from all ranks. Differentiable."""
    tensors = list(tensors)
    if wants_gradient(tensors):
        return _GroupedAllgather.apply(name, process_set, *tensors)
    return _ops.finish(grouped_allgather_async(tensors, name, process_set))


# ---- broadcast --------------------------------------------------------------------------------------------------


def _broadcast_async(tensor, output, root_rank, name, process_set):
    check_tensor(tensor, "broadcast", name)
    process_set._check_id()
    try:
        root_rank = operator.index(root_rank)
    except TypeError:
        raise ValueError(f"broadcast: root_rank is the number of a rank, not {root_rank!r}") from None
    full_name = full_name_of("broadcast", name)
    found = prepared(name, (full_name, tensor.dtype, tensor.shape, root_rank, "broadcast"), full_name,
                     _core.BROADCAST, DTYPES[tensor.dtype], tensor.shape, Sum, 1.0, 1.0, root_rank)
    return submit(found, tensor, torch.empty_like(tensor) if output is None else output)


def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
    """Starts the copy of the root's tensor into a new tensor of every rank; returns a handle."""
    return _broadcast_async(tensor, None, root_rank, name, process_set)


def broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set):
    """As broadcast_async, in place."""
    return _broadcast_async(tensor, tensor, root_rank, name, process_set)


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        ctx.root_rank, ctx.process_set = root_rank, process_set
        return _ops.finish(broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx, gradient):
        reduced = allreduce(gradient.contiguous(), op=Average, process_set=ctx.process_set)
        return reduced if rank() == ctx.root_rank else reduced * 0, None, None, None


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """The root's tensor, in a new tensor. Differentiable."""
    if wants_gradient([tensor]):
        return _Broadcast.apply(tensor, root_rank, name, process_set)
    return _ops.finish(broadcast_async(tensor, root_rank, name, process_set))


def broadcast_(tensor, root_rank, name=None, process_set=global_process_set):
    """As broadcast, in place (and not differentiable)."""
    return _ops.finish(broadcast_async_(tensor, root_rank, name, process_set))


# ---- the rest ---------------------------------------------------------------------------------------------------


def barrier(process_set=global_process_set):
    """Returns when every rank has called it."""
    process_set._check_id()
    _ops.barrier()


def _to_come(verb, instead):
    return NotImplementedError(f"hvd.{verb} is not part of this version of Horovod yet; {instead}")


def alltoall_async(tensor, splits=None, name=None, process_set=global_process_set):
    raise _to_come("alltoall", "hvd.allgather followed by slicing gives the same rows")


def alltoall(tensor, splits=None, name=None, process_set=global_process_set):
    raise _to_come("alltoall", "hvd.allgather followed by slicing gives the same rows")


def reducescatter_async(tensor, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0,
                        postscale_factor=1.0):
    raise _to_come("reducescatter", "hvd.allreduce followed by slicing gives the same rows")


def reducescatter(tensor, name=None, compression=Compression.none, op=Average, process_set=global_process_set,
                  prescale_factor=1.0, postscale_factor=1.0):
    raise _to_come("reducescatter", "hvd.allreduce followed by slicing gives the same rows")


def grouped_reducescatter_async(tensors, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0,
                                postscale_factor=1.0):
    raise _to_come("grouped_reducescatter", "hvd.grouped_allreduce followed by slicing gives the same rows")


def grouped_reducescatter(tensors, name=None, compression=Compression.none, op=Average,
                          process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    raise _to_come("grouped_reducescatter", "hvd.grouped_allreduce followed by slicing gives the same rows")


def join(device=-1):
    raise _to_come("join", "give every rank the same number of batches, for instance with a DistributedSampler")
