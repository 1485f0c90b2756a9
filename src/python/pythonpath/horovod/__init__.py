"""What a module puts into PYTHONPATH in place of the package itself. PYTHONPATH comes before the folders of a Python,
so the package there would hide a package that somebody installed into an environment. This file avoids that: it becomes
the first horovod that Python finds without it. If there is none, it becomes the horovod of this installation."""
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


# It is added at the end. importlib.metadata, and processes that get this path, find the installation there, too.
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
