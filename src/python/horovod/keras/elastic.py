"""Elastic training with Keras on any of its backends: `hvd.elastic`."""
import keras as _keras

from horovod._keras.backends import backend_of as _backend_of
from horovod._keras.elastic import ModelState, make_elastic_callbacks, make_run
from horovod.common.exceptions import HorovodInternalError
from horovod.keras import _basics

CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback = make_elastic_callbacks(_keras, __name__)


class KerasState(ModelState):
    __doc__ = ModelState.__doc__


def _failure_of(error):
    backend = _backend_of(_keras)
    if isinstance(error, HorovodInternalError):
        failure = error
    elif backend == "tensorflow":
        from horovod.tensorflow.elastic import failure_of
        return failure_of(error)
    else:
        failure = None
    if backend == "jax":  # also where a callback has failed after the program
        from horovod._keras.on_jax import take_error
        failure = take_error() or failure
    return failure if isinstance(failure, HorovodInternalError) else None


def _forget_failures():
    backend = _backend_of(_keras)
    if backend == "jax":
        from horovod._keras.on_jax import forget_error
        forget_error()
    elif backend == "tensorflow":
        from horovod.tensorflow.elastic import forget_failures
        forget_failures()


run = make_run(_basics, _failure_of, _forget_failures)
