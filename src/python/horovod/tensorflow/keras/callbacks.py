"""Callbacks for tf.keras."""
import tensorflow as tf

from horovod._keras.callbacks import make_callbacks

_classes = make_callbacks(tf.keras)
BroadcastGlobalVariablesCallback = _classes["BroadcastGlobalVariablesCallback"]
MetricAverageCallback = _classes["MetricAverageCallback"]
LearningRateScheduleCallback = _classes["LearningRateScheduleCallback"]
LearningRateWarmupCallback = _classes["LearningRateWarmupCallback"]
BestModelCheckpoint = _classes["BestModelCheckpoint"]
for _class in _classes.values():
    _class.__module__ = __name__
