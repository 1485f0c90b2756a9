"""Collectives on numpy arrays: for what callbacks average, and for backends of Keras without a binding of their own."""
import numpy as np

from horovod import _core, _ops
from horovod.common.operations import full_name_of, name_to_broadcast, place_in, prepared, root_of
from horovod.common.process_sets import global_process_set

_DTYPES = {"bool": _core.BOOL, "uint8": _core.UINT8, "int8": _core.INT8, "uint16": _core.UINT16, "int16": _core.INT16,
           "int32": _core.INT32, "int64": _core.INT64, "float16": _core.FLOAT16, "bfloat16": _core.BFLOAT16,
           "float32": _core.FLOAT32, "float64": _core.FLOAT64, "uint32": _core.UINT32, "uint64": _core.UINT64}


def _dtype_of(array, verb):
    try:
        return _DTYPES[array.dtype.name]
    except KeyError:
        raise ValueError(f"{verb}: arrays of type {array.dtype} are not supported; supported are: "
                         f"{', '.join(_DTYPES)}") from None


def _of(prefix, verb, array, name, set_id, dtype, *more, **description):
    full_name = full_name_of(prefix, name, set_id)
    return prepared(name, (full_name, set_id, "keras", dtype, array.shape, *more, *description.values()), full_name,
                    verb, dtype, array.shape, *more, process_set=set_id, **description)


def _one(array, dtype):
    return np.ascontiguousarray(array, dtype=dtype).reshape(np.shape(array))


def allreduce_all(arrays, names, op=_core.AVERAGE, prescale=1.0, postscale=1.0, process_set=global_process_set):
    """Returns the reductions of several arrays that start together."""
    if not arrays:
        return []
    set_id = process_set._check_id()
    inputs = [_one(array, None) for array in arrays]
    outputs = [np.empty_like(array) for array in inputs]
    members = []
    for array, output, name in zip(inputs, outputs, names):
        operation = _of("allreduce", _core.ALLREDUCE, array, name, set_id, _dtype_of(array, "allreduce"), op, prescale,
                        postscale)
        members.append((operation, array.ctypes.data, output.ctypes.data, 0))
    return _ops.finish(_ops.submit_group(members, outputs, inputs))


def allreduce(array, name=None, op=_core.AVERAGE, prescale=1.0, postscale=1.0, process_set=global_process_set):
    return allreduce_all([np.asarray(array)], [name], op, prescale, postscale, process_set)[0]


def broadcast_all(arrays, names, root_rank, process_set=global_process_set):
    """Returns the root's arrays, of any type of fixed size."""
    if not arrays:
        return []
    set_id, root_rank = process_set._check_id(), root_of(root_rank, "broadcast")
    outputs = [_one(array, None).copy() for array in arrays]
    members = []
    for output, name in zip(outputs, names):
        dtype = _DTYPES.get(output.dtype.name)
        shaped = output if dtype is not None else np.empty((*output.shape, output.itemsize), np.uint8)
        operation = _of("broadcast", _core.BROADCAST, shaped, name, set_id, _core.UINT8 if dtype is None else dtype,
                        root=root_rank)
        members.append((operation, output.ctypes.data, output.ctypes.data, 0))
    return _ops.finish(_ops.submit_group(members, outputs, outputs))


def assign_all(variables, root_rank, name):
    """Gives variables of any backend of Keras the root's values."""
    variables = [each for each in variables if "string" not in str(each.dtype)]
    names = [f"{name}.{name_to_broadcast(each, i)}" for i, each in enumerate(variables)]
    values = [np.asarray(each.numpy()) for each in variables]
    for variable, value in zip(variables, broadcast_all(values, names, root_rank)):
        variable.assign(value)


def broadcast(array, root_rank, name=None, process_set=global_process_set):
    return broadcast_all([np.asarray(array)], [name], root_rank, process_set)[0]


def allgather(array, name=None, process_set=global_process_set):
    """Returns the arrays of all ranks, one after another along the first dimension."""
    array = _one(array, None)
    if array.ndim == 0:
        raise ValueError("allgather: expected an array with a first dimension, found one of no dimensions")
    set_id = process_set._check_id()
    rows_of_bytes = array.reshape(array.shape[0], -1).view(np.uint8) if array.size else \
        np.empty((array.shape[0], int(np.prod(array.shape[1:])) * array.itemsize), np.uint8)
    operation = _of("allgather", _core.ALLGATHER, rows_of_bytes, name, set_id, _core.UINT8)
    _, size = place_in(set_id)

    def gathered(handle, _):
        rows = sum(_core.received_splits(handle, 0, size))
        return np.frombuffer(bytearray(_core.result_bytes(handle, 0)), array.dtype).reshape(rows, *array.shape[1:])

    return _ops.finish(_ops.submit(operation, rows_of_bytes.ctypes.data, 0, array.shape[0], None, rows_of_bytes,
                                   gathered))


def reducescatter(array, name=None, op=_core.AVERAGE, process_set=global_process_set):
    """Reduces the arrays of all ranks, and returns this rank's share of the rows."""
    array, set_id = _one(array, None), process_set._check_id()
    if array.ndim == 0:
        raise ValueError("reducescatter: expected an array with a first dimension to scatter, found none")
    place, size = place_in(set_id)
    each, more = divmod(array.shape[0], size)
    output = np.empty((each + (place < more), *array.shape[1:]), array.dtype)
    operation = _of("reducescatter", _core.REDUCESCATTER, array, name, set_id, _dtype_of(array, "reducescatter"), op)
    return _ops.finish(_ops.submit(operation, array.ctypes.data, output.ctypes.data, 0, output, array))
