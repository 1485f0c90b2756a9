"""reducescatter and its variants: every rank gets its share of the rows of the reduced tensor."""
import torch

from horovod import _core, _ops
from horovod.common.operations import check_scatter, full_name_of, names_of_group, prepared, rows_of_share
from horovod.common.process_sets import global_process_set
from horovod.torch._allgather import allgather, grouped_allgather
from horovod.torch._devices import ordinal_for, ordinal_for_all
from horovod.torch._job import Average, Sum
from horovod.torch._tensors import DTYPES, check_group, check_tensor, submit, submit_group, wants_gradient
from horovod.torch.compression import Compression


def _prepare(tensor, full_name, name, op, set_id, prescale_factor, postscale_factor, ordinal, group=None):
    key = (full_name, set_id, tensor.dtype, tensor.shape, op, prescale_factor, postscale_factor, ordinal)
    return prepared(name, key, full_name, _core.REDUCESCATTER, DTYPES[tensor.dtype], tensor.shape, op, prescale_factor,
                    postscale_factor, process_set=set_id, group=group, ordinal=ordinal)


def _own_share(tensor, set_id):
    """Makes an empty tensor for this rank's rows."""
    return tensor.new_empty((rows_of_share(tensor.shape[0], set_id), *tensor.shape[1:]))


def reducescatter_async(tensor, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0,
                        postscale_factor=1.0):
    """Starts the reduction (Average or Sum) of a tensor. Every rank gets its own rows of the result. Returns a
    handle."""
    check_tensor(tensor, "reducescatter", name)
    set_id = process_set._check_id()
    check_scatter(op, "reducescatter", [tensor.dim()])
    found = _prepare(tensor, full_name_of("reducescatter", name, set_id), name, op, set_id, prescale_factor,
                     postscale_factor, ordinal_for(tensor, set_id))
    return submit(found, tensor, _own_share(tensor, set_id))


class HorovodReducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, op, process_set, prescale_factor, postscale_factor):
        ctx.process_set = process_set
        ctx.factor = _factor(op, process_set, prescale_factor, postscale_factor)
        return _ops.finish(reducescatter_async(tensor, name, op, process_set, prescale_factor, postscale_factor))

    @staticmethod
    def backward(ctx, gradient):
        return (allgather((gradient * ctx.factor).contiguous(), process_set=ctx.process_set),) + (None,) * 5


def _factor(op, process_set, prescale_factor, postscale_factor):
    """Returns the factor by which gradients are multiplied; its value is the one that Horovod's users expect."""
    return (process_set.size() if op == Sum else 1) * prescale_factor * postscale_factor


def reducescatter(tensor, name=None, compression=Compression.none, op=Average, process_set=global_process_set,
                  prescale_factor=1.0, postscale_factor=1.0):
    """Returns this rank's rows of the reduced tensor. Differentiable."""
    compressed, context = compression.compress(tensor)
    how = (name, op, process_set, prescale_factor, postscale_factor)
    if wants_gradient([compressed]):
        reduced = HorovodReducescatter.apply(compressed, *how)
    else:
        reduced = _ops.finish(reducescatter_async(compressed, *how))
    return compression.decompress(reduced, context)


def grouped_reducescatter_async(tensors, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0,
                                postscale_factor=1.0):
    """Starts the reducescatter of several tensors, which become ready together. Returns one handle for all of them."""
    tensors = list(tensors)
    check_group(tensors, "grouped_reducescatter", name)
    set_id = process_set._check_id()
    check_scatter(op, "grouped_reducescatter", [tensor.dim() for tensor in tensors])
    group, names = names_of_group("grouped_reducescatter", name, len(tensors), set_id)
    ordinal = ordinal_for_all(tensors, set_id)
    operations = [_prepare(tensor, full_name, name, op, set_id, prescale_factor, postscale_factor, ordinal, group)
                  for tensor, full_name in zip(tensors, names)]
    return submit_group(operations, tensors, [_own_share(tensor, set_id) for tensor in tensors])


class HorovodGroupedReducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, op, process_set, prescale_factor, postscale_factor, *tensors):
        ctx.process_set = process_set
        ctx.factor = _factor(op, process_set, prescale_factor, postscale_factor)
        return tuple(_ops.finish(grouped_reducescatter_async(tensors, name, op, process_set, prescale_factor,
                                                             postscale_factor)))

    @staticmethod
    def backward(ctx, *gradients):
        return (None,) * 5 + grouped_allgather([(gradient * ctx.factor).contiguous() for gradient in gradients],
                                               process_set=ctx.process_set)


def grouped_reducescatter(tensors, name=None, compression=Compression.none, op=Average,
                          process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    """Returns the list of this rank's rows of the reduced tensors. Differentiable."""
    tensors = list(tensors)
    compressed, contexts = zip(*[compression.compress(tensor) for tensor in tensors]) if tensors else ((), ())
    how = (name, op, process_set, prescale_factor, postscale_factor)
    if wants_gradient(compressed):
        reduced = HorovodGroupedReducescatter.apply(*how, *compressed)
    else:
        reduced = _ops.finish(grouped_reducescatter_async(compressed, *how))
    return [compression.decompress(tensor, context) for tensor, context in zip(reduced, contexts)]
