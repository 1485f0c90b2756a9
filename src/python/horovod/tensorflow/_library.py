"""Loads the kernels into TensorFlow."""
import ctypes
import os

import tensorflow as tf

from horovod import _core  # noqa: F401  loads the library that the kernels are linked to
from horovod.tensorflow import _streams

_PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_kernels.so")


def _load():
    """Returns the module with the functions of the operations, and the function failures()."""
    try:
        operations = tf.load_op_library(_PATH)
    except tf.errors.NotFoundError as error:
        raise ImportError(f"horovod.tensorflow: TensorFlow {tf.__version__} cannot load the kernels: {error}") from None
    library = ctypes.CDLL(_PATH)
    problem = library.horovod_tensorflow_problem
    problem.restype = ctypes.c_char_p
    text = problem().decode()
    if text:
        raise ImportError(f"horovod.tensorflow: {text} (TensorFlow {tf.__version__}, {os.path.dirname(tf.__file__)}). "
                          "Supported is TensorFlow 2.13 and later")
    _streams.register_for_gpus(library)
    count_failures = library.horovod_tensorflow_failures
    count_failures.restype = ctypes.c_uint64
    return operations, count_failures


def _let_operations_overlap():
    """In a tf.function TensorFlow lets stateful operations run one after another, and one alone fuses with nothing.
    Ours may run in any order and must run; TensorFlow has a list of such operations. A release without the list runs
    them one after another."""
    try:
        from tensorflow.python.framework import auto_control_deps
        auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS |= frozenset(COLLECTIVES + FACTS)
    except (ImportError, AttributeError, TypeError):
        pass


COLLECTIVES = (
    "HorovodAllreduce", "HorovodGroupedAllreduce", "HorovodAllgather", "HorovodGroupedAllgather", "HorovodBroadcast",
    "HorovodAlltoall", "HorovodReducescatter", "HorovodGroupedReducescatter")
FACTS = ("HorovodSize", "HorovodLocalSize", "HorovodRank", "HorovodLocalRank", "HorovodProcessSetIncluded")

operations, failures = _load()  # failures(): how many operations have failed because the job has
_let_operations_overlap()
for _fact in FACTS:
    tf.no_gradient(_fact)
