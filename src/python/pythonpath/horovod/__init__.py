"""This package is in PYTHONPATH instead of the real package. PYTHONPATH is searched before the folders of a
Python. Therefore the real package there would hide one that a user has installed in an environment. This package
replaces itself by the first other horovod that Python finds, or by the one of this installation if there is no
other."""
import importlib.machinery
import importlib.util
import os
import sys

_own = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_package = os.path.join(os.path.dirname(_own), "python")


def _other_horovod():
    folders = [folder for folder in sys.path if os.path.realpath(folder or os.curdir) != _own]
    for finder in sys.meta_path:
        is_of_folders = finder is importlib.machinery.PathFinder
        spec = finder.find_spec("horovod", folders if is_of_folders else None)
        if spec is not None and spec.loader is not None and spec.origin != __spec__.origin:
            return spec
    return None


# At the end of sys.path, so that importlib.metadata and processes that inherit this path find the installation, too.
if _package not in sys.path:
    sys.path.append(_package)
_spec = _other_horovod()
if _spec is None:
    raise ModuleNotFoundError(f"there is no horovod in {_package}: this installation has lost its Python package",
                              name="horovod")
_module = importlib.util.module_from_spec(_spec)
sys.modules["horovod"] = _module
try:
    _spec.loader.exec_module(_module)
except BaseException:
    sys.modules.pop("horovod", None)
    raise
