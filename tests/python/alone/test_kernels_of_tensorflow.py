"""What horovod.tensorflow has beside TensorFlow, which plain test runs do without."""
import ctypes
import os

import horovod
from horovod import _core  # noqa: F401  loads the library that the kernels are linked to
from horovod.common import built_streams


def test_the_kernels_load_without_tensorflow_and_say_what_they_lack():
    kernels = ctypes.CDLL(os.path.join(os.path.dirname(horovod.__file__), "tensorflow", "_kernels.so"))
    kernels.horovod_tensorflow_problem.restype = ctypes.c_char_p
    assert kernels.horovod_tensorflow_problem() == b"no library of TensorFlow is loaded in this process"


def test_what_was_built_for_streams_is_found_by_its_version(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert built_streams.versions() == []
    path = built_streams.path_for("2.99.0")
    os.makedirs(os.path.dirname(path))
    assert built_streams.versions() == []
    open(path, "w").close()
    assert built_streams.versions() == ["2.99.0"] and path.startswith(str(tmp_path))
