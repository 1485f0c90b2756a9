"""Callbacks for Keras on any of its backends."""
import keras

from horovod._keras.callbacks import make_callbacks
from horovod._keras.checkpoint import make_stop_callbacks

_classes = {**make_callbacks(keras), **make_stop_callbacks(keras)}
BroadcastGlobalVariablesCallback = _classes["BroadcastGlobalVariablesCallback"]
MetricAverageCallback = _classes["MetricAverageCallback"]
LearningRateScheduleCallback = _classes["LearningRateScheduleCallback"]
LearningRateWarmupCallback = _classes["LearningRateWarmupCallback"]
BestModelCheckpoint = _classes["BestModelCheckpoint"]
StopCallback = _classes["StopCallback"]
CheckpointCallback = _classes["CheckpointCallback"]
for _class in _classes.values():
    _class.__module__ = __name__
