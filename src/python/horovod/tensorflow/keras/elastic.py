"""Elastic training with tf.keras: `hvd.elastic`."""
import tensorflow as tf

from horovod._keras.elastic import ModelState, make_elastic_callbacks
from horovod.tensorflow.elastic import run  # noqa: F401

_classes = make_elastic_callbacks(tf.keras)
CommitStateCallback = _classes["CommitStateCallback"]
UpdateBatchStateCallback = _classes["UpdateBatchStateCallback"]
UpdateEpochStateCallback = _classes["UpdateEpochStateCallback"]
for _class in _classes.values():
    _class.__module__ = __name__


class KerasState(ModelState):
    __doc__ = ModelState.__doc__
