"""Horovod for TensorFlow: `import horovod.tensorflow as hvd`."""
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod.common.stops import request_stop
from horovod.common.stops import should_stop_after_barrier as should_stop
from horovod.common.stops import stop_cause, stop_reason
from horovod.common.util import _cache, split_list
from horovod.tensorflow._collectives import allreduce, grouped_allreduce, grouped_reducescatter, reducescatter
from horovod.tensorflow._names import executing_eagerly as _executing_eagerly
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import (BroadcastGlobalVariablesHook, allgather_object, broadcast_global_variables,
                                          broadcast_object, broadcast_object_fn, broadcast_variables)
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.gradient_reduction import refs_to_vars, vars_to_refs
from horovod.tensorflow.mpi_ops import (
    Adasum, Average, Max, Min, Product, Sum, allgather, alltoall, barrier, broadcast, broadcast_, ccl_built, cross_rank,
    cross_size, cuda_built, ddl_built, gloo_built, gloo_enabled, gpu_available, grouped_allgather,
    handle_average_backwards_compatibility, init, is_homogeneous, is_initialized, join, local_device, local_rank,
    local_rank_op, local_size, local_size_op, mpi_built, mpi_enabled, mpi_threads_supported, nccl_built,
    process_set_included_op, rank, rank_op, rocm_built, shutdown, size, size_op, start_timeline, stop_timeline)
from horovod.tensorflow.optimizer import DistributedOptimizer
from horovod.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape

__all__ = [name for name in dir() if not name.startswith("_")]


def check_num_rank_power_of_2(num_rank):
    """Raises unless the number of ranks is a power of two, as Adasum needs it."""
    from horovod.common.util import num_rank_is_power_2
    if not num_rank_is_power_2(num_rank):
        raise ValueError(f"op=hvd.Adasum needs a number of ranks that is a power of two; found {num_rank}")


def _make_subgraph(function):
    import tensorflow
    return tensorflow.function(function)


def _check_has_gpu():
    import tensorflow
    return bool(tensorflow.config.list_physical_devices("GPU"))


def __getattr__(name):
    import importlib
    if name in ("checkpoint", "data", "elastic", "keras"):
        return importlib.import_module(f"horovod.tensorflow.{name}")
    if name == "callbacks":
        return importlib.import_module("horovod.tensorflow.keras.callbacks")
    if name == "SyncBatchNormalization":
        return importlib.import_module("horovod.tensorflow.sync_batch_norm").SyncBatchNormalization
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
