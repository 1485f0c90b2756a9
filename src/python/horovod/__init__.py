"""Horovod: N copies of a training program act as one. Frameworks live in modules of their own: `horovod.torch`."""
from horovod._version import __version__

__all__ = ["__version__"]
