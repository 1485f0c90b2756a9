"""Where `python -m horovod.tensorflow.build` keeps the libraries that it builds. Does not import TensorFlow."""
import os
import platform

from horovod import __version__

_FILE = "streams.so"


def folder() -> str:
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "horovod")


def _ending() -> str:
    return f"-for-horovod-{__version__}-{platform.machine()}"


def path_for(tensorflow: str) -> str:
    """Returns the path of the library for this version of TensorFlow, whether it is there or not."""
    return os.path.join(folder(), f"tensorflow-{tensorflow}{_ending()}", _FILE)


def versions() -> list[str]:
    """Returns the versions of TensorFlow for which there is a library."""
    begin, end = "tensorflow-", _ending()
    try:
        names = sorted(os.listdir(folder()))
    except OSError:
        return []
    return [name[len(begin):-len(end)] for name in names if name.startswith(begin) and name.endswith(end)
            and os.path.exists(os.path.join(folder(), name, _FILE))]
