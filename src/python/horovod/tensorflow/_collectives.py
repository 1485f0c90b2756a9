"""The reductions as programs call them: with compression, with sparse tensors, on a device."""
import tensorflow as tf

from horovod.common.operations import check_adasum, check_reduction, place_in
from horovod.common.process_sets import global_process_set
from horovod.tensorflow import mpi_ops
from horovod.tensorflow._job import Adasum, Average, Sum, handle_average_backwards_compatibility
from horovod.tensorflow.compression import Compression


def allreduce(tensor, average=None, device_dense="", device_sparse="", compression=Compression.none, op=None,
              prescale_factor=1.0, postscale_factor=1.0, name=None, process_set=global_process_set,
              ignore_name_scope=False):
    """Returns the reduction of the tensors of all ranks of the set. tf.IndexedSlices are gathered: the result has the
    slices of all ranks, divided by the number of ranks if op is Average.

    device_dense, device_sparse: a device of TensorFlow's on which the operation is placed.
    """
    op = handle_average_backwards_compatibility(op, average)
    check_reduction(op, "allreduce")
    if isinstance(tensor, tf.IndexedSlices):
        _check_sparse(op, prescale_factor, postscale_factor, process_set)
        with tf.device(device_sparse):
            return _reduce_slices([tensor], op, name, process_set, ignore_name_scope)[0]
    if op == Adasum:
        check_adasum(process_set)
    with tf.device(device_dense):
        compressed, context = compression.compress(tf.convert_to_tensor(tensor))
        reduced = mpi_ops._allreduce(compressed, name=name, op=op, prescale_factor=prescale_factor,
                                     postscale_factor=postscale_factor, ignore_name_scope=ignore_name_scope,
                                     process_set=process_set)
        return compression.decompress(reduced, context)


def grouped_allreduce(tensors, average=None, device_dense="", device_sparse="", compression=Compression.none, op=None,
                      prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set,
                      ignore_name_scope=False, name=None):
    """allreduce of several tensors that become ready together; some may be tf.IndexedSlices."""
    if not tensors:
        return tensors
    op = handle_average_backwards_compatibility(op, average)
    check_reduction(op, "grouped_allreduce")
    sparse = [i for i, tensor in enumerate(tensors) if isinstance(tensor, tf.IndexedSlices)]
    dense = [i for i in range(len(tensors)) if i not in set(sparse)]
    results = [None] * len(tensors)
    if sparse:
        _check_sparse(op, prescale_factor, postscale_factor, process_set)
        with tf.device(device_sparse):
            slices = _reduce_slices([tensors[i] for i in sparse], op, name, process_set, ignore_name_scope)
        for i, reduced in zip(sparse, slices):
            results[i] = reduced
    if dense:
        if op == Adasum:
            check_adasum(process_set)
        with tf.device(device_dense):
            pairs = [compression.compress(tf.convert_to_tensor(tensors[i])) for i in dense]
            reduced = mpi_ops._grouped_allreduce([compressed for compressed, _ in pairs], name=name, op=op,
                                                 prescale_factor=prescale_factor, postscale_factor=postscale_factor,
                                                 ignore_name_scope=ignore_name_scope, process_set=process_set)
            for i, tensor, (_, context) in zip(dense, reduced, pairs):
                results[i] = compression.decompress(tensor, context)
    return results


def _check_sparse(op, prescale_factor, postscale_factor, process_set):
    place_in(process_set._check_id())  # ValueError for a set that is not there
    if op not in (Average, Sum):
        raise NotImplementedError("allreduce of tf.IndexedSlices: op is hvd.Average or hvd.Sum; with "
                                  "tf.convert_to_tensor(slices) any other one is possible")
    if prescale_factor != 1.0 or postscale_factor != 1.0:
        raise NotImplementedError("allreduce of tf.IndexedSlices: prescale_factor and postscale_factor are for dense "
                                  "tensors; scale the values, or use tf.convert_to_tensor(slices)")


def _reduce_slices(slices, op, name, process_set, ignore_name_scope):
    """Gathers the values and the indices of several tf.IndexedSlices together."""
    parts = [part for each in slices for part in (each.values, each.indices)]
    gathered = mpi_ops.grouped_allgather(parts, name=name and f"{name}_slices", process_set=process_set,
                                         ignore_name_scope=ignore_name_scope)
    results = []
    for each, values, indices in zip(slices, gathered[::2], gathered[1::2]):
        if op == Average:
            values = values / tf.cast(mpi_ops.size_op(process_set._check_id()), values.dtype)
        results.append(tf.IndexedSlices(values, indices, dense_shape=each.dense_shape))
    return results


def reducescatter(tensor, device_dense="", compression=Compression.none, op=Average, name=None,
                  process_set=global_process_set, ignore_name_scope=False, prescale_factor=1.0, postscale_factor=1.0):
    """Reduces the tensors of all ranks of the set, and gives each rank its share of the rows."""
    with tf.device(device_dense):
        compressed, context = compression.compress(tf.convert_to_tensor(tensor))
        reduced = mpi_ops._reducescatter(compressed, name=name, op=op, prescale_factor=prescale_factor,
                                         postscale_factor=postscale_factor, ignore_name_scope=ignore_name_scope,
                                         process_set=process_set)
        return compression.decompress(reduced, context)


def grouped_reducescatter(tensors, device_dense="", compression=Compression.none, op=Average,
                          process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    """reducescatter of several tensors that become ready together."""
    if not tensors:
        return tensors
    with tf.device(device_dense):
        pairs = [compression.compress(tf.convert_to_tensor(tensor)) for tensor in tensors]
        reduced = mpi_ops._grouped_reducescatter([compressed for compressed, _ in pairs], op=op,
                                                 prescale_factor=prescale_factor, postscale_factor=postscale_factor,
                                                 process_set=process_set)
        return [compression.decompress(tensor, context) for tensor, (_, context) in zip(reduced, pairs)]
