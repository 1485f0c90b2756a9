"""Horovod for Keras 3 on any of its backends, and for Keras 2: `import horovod.keras as hvd`."""
import os

import keras as _keras

import horovod as _horovod
from horovod._keras import arrays as _arrays
from horovod._keras.backends import backend_of as _backend_of
from horovod._keras.backends import compression_of as _compression_of
from horovod._keras.models import load_model as _load_model
from horovod._keras.optimizers import create_distributed_optimizer as _create_distributed_optimizer
from horovod.common.basics import HorovodBasics as _HorovodBasics
from horovod.common.objects import allgather_object, broadcast_object
from horovod.common.process_sets import global_process_set
from horovod.common.stops import request_stop
from horovod.common.stops import should_stop_after_barrier as should_stop
from horovod.common.stops import stop_cause, stop_reason
from horovod.common.util import get_average_backwards_compatibility_fun as _get_average_fun
from horovod.keras import callbacks, checkpoint

_basics = _HorovodBasics(os.path.join(os.path.dirname(_horovod.__file__), "torch", "__init__.py"), "mpi_lib_v2")

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
local_device = _basics.local_device
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
Compression = _compression_of(_keras)
_is_tensorflow = _backend_of(_keras) == "tensorflow"
_resolve_op = _get_average_fun(_HorovodBasics)


def DistributedOptimizer(optimizer, name=None, device_dense="", device_sparse="", compression=Compression.none,
                         sparse_as_dense=False, gradient_predivide_factor=1.0, op=Average, num_groups=0, groups=None):
    """Returns an optimizer of Keras that applies gradients which are reduced over all ranks. The arguments are those of
    horovod.tensorflow.DistributedOptimizer."""
    return _create_distributed_optimizer(
        _keras, optimizer, name, device_dense, device_sparse, compression, sparse_as_dense, gradient_predivide_factor,
        op, 1, False, num_groups, groups, global_process_set, True)


def PartialDistributedOptimizer(optimizer, name=None, device_dense="", device_sparse="", compression=Compression.none,
                                sparse_as_dense=False, gradient_predivide_factor=1.0, op=Average,
                                backward_passes_per_step=1, average_aggregated_gradients=False, groups=None,
                                process_set=global_process_set, local_layers=None, scale_local_gradients=True):
    """DistributedOptimizer that leaves the gradients of `local_layers`, a layer or a list of layers, this rank's own.
    scale_local_gradients: they are divided by the number of ranks."""
    layers = [] if local_layers is None else local_layers if isinstance(local_layers, (list, tuple)) else [local_layers]
    for layer in layers:
        if not isinstance(layer, _keras.layers.Layer):
            raise ValueError(f"local_layers is a layer of Keras or a list of layers; found {layer!r}")
    distributed = _create_distributed_optimizer(
        _keras, optimizer, name, device_dense, device_sparse, compression, sparse_as_dense, gradient_predivide_factor,
        op, backward_passes_per_step, average_aggregated_gradients, 0, groups, process_set, scale_local_gradients)
    for layer in layers:
        for weight in layer.trainable_weights:
            distributed.register_local_var(weight)
    return distributed


def broadcast_global_variables(root_rank):
    """Gives all variables of TensorFlow 1's graph the root's values. Elsewhere use
    callbacks.BroadcastGlobalVariablesCallback."""
    if not _is_tensorflow:
        raise RuntimeError("hvd.broadcast_global_variables() needs a graph of TensorFlow 1; use "
                           "hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank)")
    from horovod.tensorflow.keras import broadcast_global_variables as of_tensorflow
    return of_tensorflow(root_rank)


def allreduce(value, name=None, average=True, prescale_factor=1.0, postscale_factor=1.0, op=None,
              compression=Compression.none):
    """Returns the reduction of the values of all ranks: a tensor on TensorFlow, else an array of numpy. With `op`,
    average=None must be given, too."""
    if _is_tensorflow:
        from horovod.tensorflow import keras as of_tensorflow
        return of_tensorflow.allreduce(value, name, average, prescale_factor, postscale_factor, op, compression)
    return _arrays.allreduce(_numbers(value), name, _resolve_op(op, average), prescale_factor, postscale_factor)


def allgather(value, name=None):
    """Returns the values of all ranks, one after another along the first dimension."""
    if _is_tensorflow:
        from horovod.tensorflow import keras as of_tensorflow
        return of_tensorflow.allgather(value, name)
    return _arrays.allgather(_numbers(value), name)


def broadcast(value, root_rank, name=None):
    """Returns the root's value on every rank."""
    if _is_tensorflow:
        from horovod.tensorflow import keras as of_tensorflow
        return of_tensorflow.broadcast(value, root_rank, name)
    return _arrays.broadcast(_numbers(value), root_rank, name)


def reducescatter(value, name=None, op=Average):
    """Reduces the values of all ranks, and returns this rank's share of the rows."""
    if _is_tensorflow:
        from horovod.tensorflow import keras as of_tensorflow
        return of_tensorflow.reducescatter(value, name, op)
    return _arrays.reducescatter(_numbers(value), name, op)


def _numbers(value):
    return _keras.ops.convert_to_numpy(value)


def load_model(filepath, custom_optimizers=None, custom_objects=None, compression=Compression.none, legacy_opts=False):
    """Loads a saved model whose optimizer becomes a DistributedOptimizer in the saved state.

    custom_optimizers: classes of optimizers that Keras does not know. legacy_opts: has no effect; whatever optimizer
    the file has is taken.
    """
    return _load_model(_keras, lambda optimizer: DistributedOptimizer(optimizer, compression=compression), filepath,
                       custom_optimizers, custom_objects)


def barrier():
    """Returns when every rank has called it."""
    from horovod import _ops
    _ops.barrier(0)


from horovod.keras import elastic  # noqa: E402, F401  it needs what is defined above


def __getattr__(name):
    if name == "SyncBatchNormalization":
        raise AttributeError("SyncBatchNormalization is there for TensorFlow: "
                             "horovod.tensorflow.SyncBatchNormalization. For Keras on torch or JAX there is none: use "
                             "GroupNormalization or LayerNormalization, whose statistics are those of a row alone")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
