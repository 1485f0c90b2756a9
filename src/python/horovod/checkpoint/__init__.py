"""Checkpoints for PyTorch: `hvd.checkpoint` of `import horovod.torch as hvd`.

    hvd.checkpoint.save("run/model.h5", model, optimizer, step=step, scheduler=scheduler, extra={"loss": loss})
    rest = hvd.checkpoint.restore("run/model.h5", model, optimizer, scheduler=scheduler)

All functions are collective; only rank 0 opens files, but those of checkpoints in shards. docs/checkpoints.md has the
details.
"""
from horovod.checkpoint.callback import CheckpointCallback
from horovod.checkpoint.checkpointer import Checkpointer
from horovod.checkpoint.collective import save
from horovod.checkpoint.restoring import latest, restore
from horovod.checkpoint.sampler import Sampler

__all__ = ["CheckpointCallback", "Checkpointer", "Sampler", "latest", "restore", "save"]
