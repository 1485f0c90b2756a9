"""Horovod: N copies of a training program act as one. Frameworks live in modules of their own: `horovod.torch`."""
from horovod._version import __version__
from horovod.runner import run

__all__ = ["__version__", "run"]
