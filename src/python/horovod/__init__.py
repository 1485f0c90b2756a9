"""Horovod: N copies of a training program act as one. Each framework has its own module: `horovod.torch`."""
from horovod._version import __version__
from horovod.runner import run

__all__ = ["__version__", "run"]
