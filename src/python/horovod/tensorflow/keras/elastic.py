"""Elastic training with tf.keras: `hvd.elastic`."""
import tensorflow as tf

from horovod._keras.elastic import ModelState, make_elastic_callbacks
from horovod.tensorflow.elastic import run  # noqa: F401

CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback = make_elastic_callbacks(tf.keras, __name__)


class KerasState(ModelState):
    __doc__ = ModelState.__doc__
