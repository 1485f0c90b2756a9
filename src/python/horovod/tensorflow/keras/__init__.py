"""Horovod for tf.keras: `import horovod.tensorflow.keras as hvd`."""
import tensorflow as tf

from horovod._keras.models import load_model as _load_model
from horovod._keras.optimizers import create_distributed_optimizer
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod.common.stops import request_stop
from horovod.common.stops import should_stop_after_barrier as should_stop
from horovod.common.stops import stop_cause, stop_reason
from horovod.tensorflow import _collectives
from horovod.tensorflow import functions as _functions
from horovod.tensorflow import mpi_ops as _mpi_ops
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import allgather_object, broadcast_object
from horovod.tensorflow.keras import callbacks, checkpoint, elastic
from horovod.tensorflow.mpi_ops import (
    Average, Sum, barrier, ccl_built, cross_rank, cross_size, cuda_built, ddl_built, gloo_built, gloo_enabled, init,
    is_homogeneous, is_initialized, local_device, local_rank, local_size, mpi_built, mpi_enabled,
    mpi_threads_supported, nccl_built, rank, rocm_built, shutdown, size, start_timeline, stop_timeline)


def DistributedOptimizer(optimizer, name=None, device_dense="", device_sparse="", compression=Compression.none,
                         sparse_as_dense=False, gradient_predivide_factor=1.0, op=Average, backward_passes_per_step=1,
                         average_aggregated_gradients=False, num_groups=0, groups=None, process_set=global_process_set,
                         scale_local_gradients=True):
    """Returns an optimizer of Keras that applies gradients which are reduced over the ranks of the set. The arguments
    are those of horovod.tensorflow.DistributedOptimizer."""
    return create_distributed_optimizer(
        tf.keras, optimizer, name, device_dense, device_sparse, compression, sparse_as_dense,
        gradient_predivide_factor, op, backward_passes_per_step, average_aggregated_gradients, num_groups, groups,
        process_set, scale_local_gradients)


def broadcast_global_variables(root_rank):
    """Gives all variables of TensorFlow 1's graph the root's values. In eager mode use
    callbacks.BroadcastGlobalVariablesCallback."""
    operation = _functions.broadcast_global_variables(root_rank)
    return tf.compat.v1.keras.backend.get_session().run(operation)


def allreduce(value, name=None, average=None, prescale_factor=1.0, postscale_factor=1.0, op=None,
              compression=Compression.none):
    """Returns the reduction of the values of all ranks."""
    return _collectives.allreduce(tf.convert_to_tensor(value), name=name, average=average, op=op,
                                  prescale_factor=prescale_factor, postscale_factor=postscale_factor,
                                  compression=compression)


def allgather(value, name=None):
    """Returns the values of all ranks, one after another along the first dimension."""
    return _mpi_ops.allgather(tf.convert_to_tensor(value), name=name)


def broadcast(value, root_rank, name=None):
    """Returns the root's value on every rank."""
    return _mpi_ops.broadcast(tf.convert_to_tensor(value), root_rank, name=name)


def reducescatter(value, name=None, op=Average):
    """Reduces the values of all ranks, and returns this rank's share of the rows."""
    return _collectives.reducescatter(tf.convert_to_tensor(value), name=name, op=op)


def load_model(filepath, custom_optimizers=None, custom_objects=None, compression=Compression.none, legacy_opts=False):
    """Loads a saved model whose optimizer becomes a DistributedOptimizer in the saved state.

    custom_optimizers: classes of optimizers that Keras does not know. legacy_opts: has no effect; whatever optimizer
    the file has is taken.
    """
    return _load_model(tf.keras, lambda optimizer: DistributedOptimizer(optimizer, compression=compression), filepath,
                       custom_optimizers, custom_objects)
