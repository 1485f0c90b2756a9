"""Which NCCL operations on GPUs would use. It looks where native/nccl/library.cpp looks, and loads nothing."""
import ctypes
import importlib.metadata
import os
import pathlib
import re

from horovod import _ops

_SYSTEM = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
_OLDEST = 21800


def nccl_version() -> int:
    """Returns the version as NCCL writes it (22809 for 2.28.9), or 0 if no NCCL would be used."""
    if _ops.setting("HOROVOD_NCCL").strip() == "0":
        return 0
    named = _ops.setting("HOROVOD_NCCL_LIBRARY").strip()
    version = _of_file(named) if named else _of_process() or _of_loader() or _of_pypi()
    return version if version >= _OLDEST else 0


def _code(text: str) -> int:
    found = re.fullmatch(r"(\d+)\.(\d+)(?:\.(\d+))?.*", text)
    return int(found[1]) * 10000 + int(found[2]) * 100 + int(found[3] or 0) if found else 0


def _of_file(path: str) -> int:
    """Asks the library if it is loaded already. Otherwise takes the version from the name of its file or package."""
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        version = ctypes.c_int()
        if library.ncclGetVersion(ctypes.byref(version)) == 0:
            return version.value
    except (OSError, AttributeError):
        pass
    real = pathlib.Path(os.path.realpath(path))
    of_name = _code(real.name.partition(".so.")[2]) if real.exists() else 0
    return of_name or (_of_pypi() if "nvidia/nccl/lib" in str(real) else 0)


def _of_process() -> int:
    try:
        maps = pathlib.Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    found = re.search(r" (/\S*/libnccl\.so\S*)$", maps, re.M)
    return _of_file(found[1]) if found else 0


def _of_loader() -> int:
    folders = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), *_SYSTEM]
    files = (f"{folder}/libnccl.so.2" for folder in folders if folder)
    return next((_of_file(file) for file in files if os.path.exists(file)), 0)


def _of_pypi() -> int:
    for cuda in ("cu13", "cu12", "cu11"):
        try:
            return _code(importlib.metadata.version(f"nvidia-nccl-{cuda}"))
        except importlib.metadata.PackageNotFoundError:
            continue
    return 0
