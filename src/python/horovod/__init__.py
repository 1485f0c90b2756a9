"""Horovod: N copies of a training program work as one. Each framework has a module of its own: `horovod.torch`."""
from horovod._version import __version__
from horovod.runner import run

__all__ = ["__version__", "run"]
