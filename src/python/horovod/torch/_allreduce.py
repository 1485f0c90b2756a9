"""allreduce and its variants: for one tensor, or for several that become ready together; into new tensors or in
place."""
import torch

from horovod import _core, _ops
from horovod.common.operations import check_has_gradient, check_reduction, full_name_of, names_of_group, prepared
from horovod.common.process_sets import global_process_set
from horovod.torch._devices import ordinal_for, ordinal_for_all
from horovod.torch._job import (Adasum, Average, Max, Min, Product, Sum, handle_average_backwards_compatibility)
from horovod.torch._tensors import (DTYPES, check_adasum, check_group, check_tensor, is_on_host, note_change, submit,
                                    submit_group, version_of, wants_gradient)
from horovod.torch.compression import Compression


def _check_reduction(op, verb, process_set, tensors):
    check_reduction(op, verb)
    if op == Adasum:
        for tensor in tensors:
            check_adasum(process_set, tensor)


# ---- one tensor -------------------------------------------------------------------------------------------------


def _allreduce_async(tensor, name, average, op, prescale_factor, postscale_factor, process_set):
    """Starts an allreduce into a new tensor."""
    if average is None:
        handle = _core.start_again(tensor, False, name, op, prescale_factor, postscale_factor, process_set)
        if handle is not None:
            return handle
    op = handle_average_backwards_compatibility(op, average)
    return _start_first_allreduce(tensor, False, name, op, prescale_factor, postscale_factor, process_set)


def _start_first_allreduce(tensor, in_place, name, op, prescale_factor, postscale_factor, process_set):
    check_tensor(tensor, "allreduce", name)
    set_id = process_set._check_id()
    _check_reduction(op, "allreduce", process_set, [tensor])
    dtype, shape = tensor.dtype, tensor.shape
    full_name = full_name_of("allreduce", name, set_id)
    ordinal = ordinal_for(tensor, set_id)
    found = prepared(name, (full_name, set_id, dtype, shape, op, prescale_factor, postscale_factor, ordinal), full_name,
                     _core.ALLREDUCE, DTYPES[dtype], shape, op, prescale_factor, postscale_factor, process_set=set_id,
                     ordinal=ordinal)
    if name is not None and (ordinal >= 0 or is_on_host(tensor)):
        _ops.remember(name, _core.Known(found, tensor, torch.empty_like, op, prescale_factor, postscale_factor,
                                        process_set), process_set)
    return submit(found, tensor, tensor if in_place else torch.empty_like(tensor))


def allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                    process_set=global_process_set):
    """Starts the reduction of a tensor over all ranks into a new tensor. Returns a handle for poll and synchronize.

    The input must not change before synchronize has returned. Ranks match their operations by name, or by the order of
    start if they have no name. op: Average (default), Sum, Adasum, Min, Max, Product.
    """
    return _allreduce_async(tensor, name, average, op, prescale_factor, postscale_factor, process_set)


def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                     process_set=global_process_set):
    """Like allreduce_async, but in place."""
    handle = None
    if average is None:
        handle = _core.start_again(tensor, note_change, name, op, prescale_factor, postscale_factor, process_set)
    if handle is None:
        op = handle_average_backwards_compatibility(op, average)
        handle = _start_first_allreduce(tensor, True, name, op, prescale_factor, postscale_factor, process_set)
        note_change((tensor,))
    return handle


_REDUCED_LIKE_TENSORS = (Average, Sum, Adasum)  # their gradients
_REDUCED_BY_VALUES = (Min, Max, Product)


class HorovodAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, average, name, op, prescale_factor, postscale_factor, process_set):
        op = handle_average_backwards_compatibility(op, average)
        ctx.how = op, prescale_factor, postscale_factor, process_set
        result = _ops.finish(_allreduce_async(tensor, name, None, *ctx.how))
        if op in _REDUCED_BY_VALUES:
            ctx.save_for_backward(tensor, result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        op, prescale_factor, postscale_factor, process_set = ctx.how
        if ctx.saved_tensors:
            return (_gradient_by_values(gradient, *ctx.saved_tensors, *ctx.how),) + (None,) * 6
        check_has_gradient(op, "allreduce", _REDUCED_LIKE_TENSORS)
        return (allreduce(gradient.contiguous(), op=op, prescale_factor=prescale_factor,
                          postscale_factor=postscale_factor, process_set=process_set),) + (None,) * 6


def _gradient_by_values(gradient, tensor, result, op, prescale_factor, postscale_factor, process_set):
    """Returns the gradient of this rank's tensor through Min, Max or Product, as if one process held all tensors.

    Min and Max: the ranks that hold the extremum get equal shares of the result's gradient. Product: the result's
    gradient is multiplied by the product of all other ranks' tensors.
    """
    def over_ranks(x, op):
        return allreduce(x.contiguous(), op=op, process_set=process_set)

    gradient = over_ranks(gradient, Sum)
    if op == Product and (result != 0).all():  # the same decision on all ranks
        return gradient * (result / tensor)
    scaled = tensor if prescale_factor == 1.0 else tensor * prescale_factor
    if op == Product:
        is_zero = scaled == 0
        zeros = over_ranks(is_zero.to(torch.int32), Sum)
        others = over_ranks(torch.where(is_zero, torch.ones_like(scaled), scaled), Product)
        # If this rank has the only zero, its share is the product of the others. If another rank has a zero, its share
        # is 0.
        share = torch.where(is_zero, others, others / scaled) * (zeros == is_zero)
    else:
        extremum = result if prescale_factor == postscale_factor == 1.0 else over_ranks(scaled, op)
        holds = scaled == extremum
        share = (holds / over_ranks(holds.to(torch.int32), Sum)).to(gradient.dtype)
    return gradient * share * (prescale_factor * postscale_factor)


def allreduce(tensor, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0,
              postscale_factor=1.0, process_set=global_process_set):
    """Returns the tensor reduced over all ranks, as a new tensor. Differentiable, as in one process.

    The gradient is the gradient of the sum of the values that all ranks compute from the result.
    """
    op = handle_average_backwards_compatibility(op, average)
    compressed, context = compression.compress(tensor)
    if wants_gradient([compressed]):
        reduced = HorovodAllreduce.apply(compressed, None, name, op, prescale_factor, postscale_factor, process_set)
    else:
        reduced = _ops.finish(
            _allreduce_async(compressed, name, None, op, prescale_factor, postscale_factor, process_set))
    return compression.decompress(reduced, context)


def allreduce_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
               process_set=global_process_set):
    """Like allreduce, but in place and not differentiable."""
    return _ops.finish(allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set))


# ---- several tensors --------------------------------------------------------------------------------------------


def _grouped_allreduce_async(tensors, in_place, name, average, op, prescale_factor, postscale_factor, process_set):
    tensors = tuple(tensors)
    known_as = None if name is None else f"{name}#{len(tensors)}"  # differs from the name of a single tensor
    if average is None:
        handle = _core.start_group_again(tensors, in_place and note_change, known_as, op, prescale_factor,
                                         postscale_factor, process_set)
        if handle is not None:
            return handle
    op = handle_average_backwards_compatibility(op, average)
    check_group(tensors, "grouped_allreduce", name)
    set_id = process_set._check_id()
    _check_reduction(op, "grouped_allreduce", process_set, tensors)
    group, names = names_of_group("grouped_allreduce", name, len(tensors), set_id)
    ordinal = ordinal_for_all(tensors, set_id)
    operations = []
    for tensor, full_name in zip(tensors, names):
        key = (full_name, set_id, tensor.dtype, tensor.shape, op, prescale_factor, postscale_factor, ordinal)
        operations.append(prepared(name, key, full_name, _core.ALLREDUCE, DTYPES[tensor.dtype], tensor.shape, op,
                                   prescale_factor, postscale_factor, process_set=set_id, group=group,
                                   ordinal=ordinal))
    if name is not None and (ordinal >= 0 or all(map(is_on_host, tensors))):
        _ops.remember(known_as, tuple(
            _core.Known(operation, tensor, torch.empty_like, op, prescale_factor, postscale_factor, process_set)
            for operation, tensor in zip(operations, tensors)), process_set)
    if in_place:
        note_change(tensors)
    return submit_group(operations, tensors, tensors if in_place else tuple(map(torch.empty_like, tensors)))


def grouped_allreduce_async(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                            process_set=global_process_set):
    """Starts the reduction of several tensors, which become ready together. Returns one handle for all of them."""
    return _grouped_allreduce_async(tensors, False, name, average, op, prescale_factor, postscale_factor, process_set)


def grouped_allreduce_async_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                             process_set=global_process_set):
    """Like grouped_allreduce_async, but in place."""
    return _grouped_allreduce_async(tensors, True, name, average, op, prescale_factor, postscale_factor, process_set)


class HorovodGroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, average, name, op, prescale_factor, postscale_factor, process_set, *tensors):
        op = handle_average_backwards_compatibility(op, average)
        ctx.how = op, prescale_factor, postscale_factor, process_set
        results = _ops.finish(_grouped_allreduce_async(tensors, False, name, None, *ctx.how))
        if op in _REDUCED_BY_VALUES:
            # A program may send the results through backward() one after the other. What save_for_backward() keeps is
            # gone after the first of them.
            ctx.tensors, ctx.versions = tensors, [version_of(tensor) for tensor in tensors]
            ctx.results = [result.detach() for result in results]
        return results

    @staticmethod
    def backward(ctx, *gradients):
        op, prescale_factor, postscale_factor, process_set = ctx.how
        if op in _REDUCED_BY_VALUES:
            _check_that_none_was_changed(ctx.tensors, ctx.versions)
            results = ctx.results
            if torch.is_grad_enabled():  # second derivatives: the results depend on the tensors of all ranks
                results = grouped_allreduce(ctx.tensors, op=op, prescale_factor=prescale_factor,
                                            postscale_factor=postscale_factor, process_set=process_set)
            reduced = [_gradient_by_values(*each, *ctx.how) for each in zip(gradients, ctx.tensors, results)]
        else:
            check_has_gradient(op, "grouped_allreduce", _REDUCED_LIKE_TENSORS)
            reduced = grouped_allreduce([gradient.contiguous() for gradient in gradients], op=op,
                                        prescale_factor=prescale_factor, postscale_factor=postscale_factor,
                                        process_set=process_set)
        return (None,) * 6 + tuple(reduced)


def _check_that_none_was_changed(tensors, versions):
    for tensor, version in zip(tensors, versions):
        if version_of(tensor) != version:
            raise RuntimeError(f"grouped_allreduce: one of the tensors, of shape {list(tensor.shape)}, was modified by "
                               "an inplace operation before backward(), which needs its values; give the verb a clone, "
                               "or change another tensor")


def grouped_allreduce(tensors, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0,
                      postscale_factor=1.0, process_set=global_process_set):
    """Returns the list of the reduced tensors. Differentiable."""
    op = handle_average_backwards_compatibility(op, average)
    tensors = list(tensors)
    compressed, contexts = zip(*[compression.compress(tensor) for tensor in tensors]) if tensors else ((), ())
    how = (op, prescale_factor, postscale_factor, process_set)
    if wants_gradient(compressed):
        reduced = HorovodGroupedAllreduce.apply(None, name, *how, *compressed)
    else:
        reduced = _ops.finish(_grouped_allreduce_async(compressed, False, name, None, *how))
    return [compression.decompress(tensor, context) for tensor, context in zip(reduced, contexts)]


def grouped_allreduce_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                       process_set=global_process_set):
    """Like grouped_allreduce, but in place and not differentiable. Returns the tensors as a tuple."""
    return _ops.finish(
        grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set))
