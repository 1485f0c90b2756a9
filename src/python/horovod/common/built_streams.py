"""Where `python -m horovod.tensorflow.build` keeps the libraries that it builds. Does not import TensorFlow."""
import os
import platform

from horovod import __version__

_BEGIN, _END = "streams-", ".so"


def folder() -> str:
    """Never a path that depends on the working directory, where others may put libraries."""
    cache, home = os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~")
    if not os.path.isabs(cache):
        cache = os.path.join(home if os.path.isabs(home) else "/", ".cache")
    return os.path.join(cache, "horovod")


def _ending() -> str:
    return f"-for-horovod-{__version__}-{platform.machine()}"


def path_for(tensorflow: str, checksum: str) -> str:
    """Returns the path of the library for this version of TensorFlow, whether it is there or not. `checksum` tells
    builds of one version apart."""
    return os.path.join(folder(), f"tensorflow-{tensorflow}{_ending()}", f"{_BEGIN}{checksum}{_END}")


def why_unsafe(path: str) -> str:
    """Says why code at this path may be another user's; empty if it is not."""
    for each in (path, os.path.dirname(path)):
        found = os.stat(each)
        if found.st_uid not in (os.geteuid(), 0):
            return f"{each} belongs to user {found.st_uid}, expected was this user ({os.geteuid()}) or root: remove it"
        if found.st_mode & 0o022:
            return f"{each} may be written by other users (mode {found.st_mode & 0o777:o}): chmod go-w {each}"
    return ""


def _has_library(path: str) -> bool:
    return os.path.isdir(path) and any(name.startswith(_BEGIN) and name.endswith(_END) for name in os.listdir(path))


def versions() -> list[str]:
    """Returns the versions of TensorFlow for which there is a library."""
    begin, end = "tensorflow-", _ending()
    try:
        return [name[len(begin):-len(end)] for name in sorted(os.listdir(folder()))
                if name.startswith(begin) and name.endswith(end) and _has_library(os.path.join(folder(), name))]
    except OSError:
        return []
