"""The HDF5 library, which checkpoints of all frameworks need."""
import contextlib
import importlib.util
import pathlib

from horovod import _core


def find_library():
    """Opens the HDF5 library. If the loader finds none, opens the copy that came with h5py."""
    try:
        _core.checkpoint_library(None)
        return
    except NotImplementedError as error:
        bundled = _library_of_h5py()
        if bundled is None:
            raise
        reason = error
    try:
        _core.checkpoint_library(str(bundled))
    except NotImplementedError:
        raise reason from None


def _library_of_h5py():
    with contextlib.suppress(ImportError, AttributeError, ValueError):
        folder = pathlib.Path(importlib.util.find_spec("h5py").origin).parent.parent / "h5py.libs"
        return next((file for file in sorted(folder.glob("libhdf5-*.so*"))), None)
    return None
