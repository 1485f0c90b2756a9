"""Checkpoints: `hvd.checkpoint`."""
from horovod._keras.checkpoint import Checkpointer, latest, restore, save

__all__ = ["Checkpointer", "latest", "restore", "save"]
