"""The collectives on TensorFlow's dense tensors, as operations of a graph or at once, and their gradients."""
import tensorflow as tf

from horovod import _ops
from horovod.common.operations import check_has_gradient, check_reduction, place_in, root_of
from horovod.common.process_sets import (ProcessSet, add_process_set, global_process_set,  # noqa: F401
                                         remove_process_set)
from horovod.common.util import check_installed_version, gpu_available, num_rank_is_power_2  # noqa: F401
from horovod.tensorflow import mpi_lib as MPI_LIB  # noqa: F401
from horovod.tensorflow._job import (  # noqa: F401
    Adasum, Average, Max, Min, Product, Sum, _basics, ccl_built, cross_rank, cross_size, cuda_built, ddl_built,
    gloo_built, gloo_enabled, handle_average_backwards_compatibility, init, is_homogeneous, is_initialized,
    local_device, local_rank, local_size, mpi_built, mpi_enabled, mpi_threads_supported, nccl_built, rank, rocm_built,
    shutdown, size, start_timeline, stop_timeline)
from horovod.tensorflow._library import operations
from horovod.tensorflow._names import check_no_xla, default_name, executing_eagerly, node_and_tensor_name
from horovod.tensorflow._names import normalize as _normalize_name  # noqa: F401


def __getattr__(name):
    if name == "MPI_LIB_CTYPES":
        return _basics.MPI_LIB_CTYPES
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _run(function, operation, tensors, name, ignore_name_scope, process_set, *more, **attributes):
    """Makes the operation, or runs it at once. tensors: a tensor, or a list of them for a group."""
    group = tensors if isinstance(tensors, list) else [tensors]
    name = name or default_name(operation, group)
    check_no_xla(operation)
    node, tensor_name = node_and_tensor_name(name, ignore_name_scope)
    return function(tensors, *more, tensor_name=tensor_name, process_set_id=process_set._check_id(), name=node,
                    **attributes)


def _tensors(tensors):
    return [tf.convert_to_tensor(tensor) for tensor in tensors]


def _reduction(op, prescale_factor, postscale_factor):
    return {"reduce_op": op, "prescale_factor": prescale_factor, "postscale_factor": postscale_factor}


def _allreduce(tensor, name=None, op=Sum, prescale_factor=1.0, postscale_factor=1.0, ignore_name_scope=False,
               process_set=global_process_set):
    check_reduction(op, "allreduce")
    return _run(operations.horovod_allreduce, "HorovodAllreduce", tf.convert_to_tensor(tensor), name,
                ignore_name_scope, process_set, **_reduction(op, prescale_factor, postscale_factor))


def _grouped_allreduce(tensors, name=None, op=Sum, prescale_factor=1.0, postscale_factor=1.0,
                       ignore_name_scope=False, process_set=global_process_set):
    check_reduction(op, "grouped_allreduce")
    if not tensors:
        return tensors
    return _run(operations.horovod_grouped_allreduce, "HorovodGroupedAllreduce", _tensors(tensors), name,
                ignore_name_scope, process_set, **_reduction(op, prescale_factor, postscale_factor))


def allgather(tensor, name=None, ignore_name_scope=False, process_set=global_process_set):
    """Returns the tensors of all ranks of the set, one after another along the first dimension, which may differ
    between ranks."""
    return _run(operations.horovod_allgather, "HorovodAllgather", tf.convert_to_tensor(tensor), name,
                ignore_name_scope, process_set)


def grouped_allgather(tensors, name=None, ignore_name_scope=False, process_set=global_process_set):
    """allgather of several tensors that become ready together."""
    if not tensors:
        return tensors
    return _run(operations.horovod_grouped_allgather, "HorovodGroupedAllgather", _tensors(tensors), name,
                ignore_name_scope, process_set)


def broadcast(tensor, root_rank, name=None, ignore_name_scope=False, process_set=global_process_set):
    """Returns the root's tensor on every rank of the set. root_rank: a rank of the world, also in a process set."""
    return _run(operations.horovod_broadcast, "HorovodBroadcast", tf.convert_to_tensor(tensor), name,
                ignore_name_scope, process_set, root_rank=root_of(root_rank, "broadcast"))


def broadcast_(variables, root_rank, name=None, process_set=global_process_set):
    """Gives the variables the root's values. Returns them; in a graph, what they are after that."""
    variables = list(variables)
    kinds = {_is_resource(variable) for variable in variables}
    if len(kinds) > 1:
        raise ValueError("broadcast_: expected either resource variables or reference variables, found both")
    results = []
    for i, variable in enumerate(variables):
        own = f"{name}_{i + 1}of{len(variables)}" if name else f"HorovodBroadcast_{_normalize_name(variable.name)}"
        changed = variable.assign(broadcast(variable, root_rank, name=own, process_set=process_set))
        results.append(variable if executing_eagerly() else changed)
    return results


def _is_resource(variable):
    from tensorflow.python.ops import resource_variable_ops
    return resource_variable_ops.is_resource_variable(getattr(variable, "value", variable)
                                                      if not isinstance(variable, tf.Variable) else variable)


def alltoall(tensor, splits=None, name=None, ignore_name_scope=False, process_set=global_process_set):
    """Sends to each rank of the set its part of the rows, and returns the parts that came, in the order of ranks.

    splits: how many rows each rank gets; by default as many for each. If it is given, the result is a pair: the tensor,
    and how many rows came from each rank.
    """
    given = tf.convert_to_tensor([] if splits is None else splits, dtype=tf.int32)
    output, received = _run(operations.horovod_alltoall, "HorovodAlltoall", tf.convert_to_tensor(tensor), name,
                            ignore_name_scope, process_set, given)
    return output if splits is None else (output, received)


def _reducescatter(tensor, name=None, op=Sum, ignore_name_scope=False, process_set=global_process_set,
                   prescale_factor=1.0, postscale_factor=1.0):
    _check_scatter(op, "HorovodReducescatter")
    return _run(operations.horovod_reducescatter, "HorovodReducescatter", tf.convert_to_tensor(tensor), name,
                ignore_name_scope, process_set, **_reduction(op, prescale_factor, postscale_factor))


def _grouped_reducescatter(tensors, name=None, op=Sum, ignore_name_scope=False, process_set=global_process_set,
                           prescale_factor=1.0, postscale_factor=1.0):
    _check_scatter(op, "HorovodGroupedReducescatter")
    if not tensors:
        return tensors
    return _run(operations.horovod_grouped_reducescatter, "HorovodGroupedReducescatter", _tensors(tensors), name,
                ignore_name_scope, process_set, **_reduction(op, prescale_factor, postscale_factor))


def _check_scatter(op, verb):
    if op not in (Average, Sum):
        raise tf.errors.AbortedError(None, None, f"{verb}: op is hvd.Average or hvd.Sum, not {op!r}")


def join():
    """Tells all ranks that this rank has no more data. Returns when all ranks have joined: the rank that joined last.
    Until then this rank contributes zeros to every allreduce."""
    if executing_eagerly():
        return tf.constant(_ops.join(), tf.int32)
    last = tf.py_function(_ops.join, [], tf.int32, name="HorovodJoin")
    last.set_shape([])
    return last


def barrier(process_set=global_process_set):
    """Returns when every rank of the set has called it."""
    _ops.barrier(process_set._check_id())


# ---- what is known when the graph runs ----------------------------------------------------------------------------


def size_op(process_set_id=0, name=None):
    """The number of ranks of a process set, when the graph runs."""
    return operations.horovod_size(process_set_id=process_set_id, name=name)


def process_set_included_op(process_set_id=0, name=None):
    """1 if this rank is in the process set when the graph runs, else 0."""
    return operations.horovod_process_set_included(process_set_id=process_set_id, name=name)


def local_size_op(name=None):
    return operations.horovod_local_size(name=name)


def rank_op(name=None):
    return operations.horovod_rank(name=name)


def local_rank_op(name=None):
    return operations.horovod_local_rank(name=name)


# ---- gradients ----------------------------------------------------------------------------------------------------


class _SetOf:
    """The process set of an operation of which only the id is known."""

    def __init__(self, operation):
        self._id = operation.get_attr("process_set_id")

    def _check_id(self):
        return self._id


def _reduction_of(operation):
    op = operation.get_attr("reduce_op")
    check_has_gradient(op, operation.type, (Average, Sum, Adasum, Min, Max, Product))
    return {"op": op, "prescale_factor": operation.get_attr("prescale_factor"),
            "postscale_factor": operation.get_attr("postscale_factor"), "process_set": _SetOf(operation)}


def _dense(gradient):
    return tf.convert_to_tensor(gradient)


def _gradients_by_values(operation, grads, op, prescale_factor, postscale_factor, process_set):
    """Returns the gradients of this rank's tensors through Min, Max or Product, as if one process held all tensors.

    Min and Max: the ranks that hold the extremum get equal shares of the result's gradient. Product: the result's
    gradient is multiplied by the product of all other ranks' tensors.
    """
    def over_ranks(x, op):
        return _allreduce(x, op=op, process_set=process_set)

    for grad, tensor, result in zip(grads, operation.inputs, operation.outputs):
        scaled = tensor * tf.cast(prescale_factor, tensor.dtype)
        if op == Product:
            is_zero = tf.equal(scaled, 0)
            zeros = over_ranks(tf.cast(is_zero, tf.int32), Sum)
            without_zeros = tf.where(is_zero, tf.ones_like(scaled), scaled)
            # If this rank has the only zero, its share is the product of the others. If another rank has a zero, its
            # share is 0.
            share = tf.where(tf.equal(zeros, tf.cast(is_zero, tf.int32)),
                             over_ranks(without_zeros, Product) / without_zeros, tf.zeros_like(scaled))
        else:
            extremum = result if prescale_factor == postscale_factor == 1.0 else over_ranks(scaled, op)
            holds = tf.cast(tf.equal(scaled, extremum), tf.int32)
            share = tf.cast(holds / over_ranks(holds, Sum), tensor.dtype)
        yield over_ranks(_dense(grad), Sum) * share * tf.cast(prescale_factor * postscale_factor, tensor.dtype)


@tf.RegisterGradient("HorovodAllreduce")
def _gradient_of_allreduce(op, grad):
    how = _reduction_of(op)
    if how["op"] in (Min, Max, Product):
        return next(_gradients_by_values(op, [grad], **how))
    return _allreduce(_dense(grad), **how)


@tf.RegisterGradient("HorovodGroupedAllreduce")
def _gradient_of_grouped_allreduce(op, *grads):
    how = _reduction_of(op)
    if how["op"] in (Min, Max, Product):
        return list(_gradients_by_values(op, grads, **how))
    return _grouped_allreduce([_dense(grad) for grad in grads], **how)


def _own_rows(reduced, rows, process_set):
    """Returns the rows of a gathered tensor that came from this rank. rows: the number of this rank's rows."""
    place, _ = place_in(process_set._check_id())
    everyone = allgather(tf.reshape(rows, [1]), process_set=process_set)
    start = tf.reduce_sum(everyone[:place])
    return reduced[start:start + rows]


def _gradient_of_gathered(tensor, grad, process_set):
    reduced = _allreduce(_dense(grad), op=Average, process_set=process_set)
    return _own_rows(reduced, tf.shape(tensor)[0], process_set)


@tf.RegisterGradient("HorovodAllgather")
def _gradient_of_allgather(op, grad):
    return _gradient_of_gathered(op.inputs[0], grad, _SetOf(op))


@tf.RegisterGradient("HorovodGroupedAllgather")
def _gradient_of_grouped_allgather(op, *grads):
    return [_gradient_of_gathered(tensor, grad, _SetOf(op)) for tensor, grad in zip(op.inputs, grads)]


@tf.RegisterGradient("HorovodBroadcast")
def _gradient_of_broadcast(op, grad):
    reduced = _allreduce(_dense(grad), op=Average, process_set=_SetOf(op))
    return reduced if rank() == op.get_attr("root_rank") else tf.zeros_like(reduced)


@tf.RegisterGradient("HorovodAlltoall")
def _gradient_of_alltoall(op, grad, _):
    back, _ = alltoall(_dense(grad), splits=op.outputs[1], process_set=_SetOf(op))
    return [back, None]


def _gradient_of_scattered(op, grad):
    grad = _dense(grad)
    factor = op.get_attr("prescale_factor") * op.get_attr("postscale_factor")
    if op.get_attr("reduce_op") == Sum:
        factor *= place_in(op.get_attr("process_set_id"))[1]
    return allgather(grad * tf.cast(factor, grad.dtype), process_set=_SetOf(op))


@tf.RegisterGradient("HorovodReducescatter")
def _gradient_of_reducescatter(op, grad):
    return _gradient_of_scattered(op, grad)


@tf.RegisterGradient("HorovodGroupedReducescatter")
def _gradient_of_grouped_reducescatter(op, *grads):
    return [_gradient_of_scattered(op, grad) for grad in grads]
