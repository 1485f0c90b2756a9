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
    path, other = (built_streams.path_for("2.99.0", checksum) for checksum in ("0123abcd", "4567ef01"))
    os.makedirs(os.path.dirname(path))
    assert built_streams.versions() == []
    for each in path, other:
        open(each, "w").close()
        assert built_streams.versions() == ["2.99.0"] and each.startswith(str(tmp_path))
    assert path != other


def test_a_cache_that_depends_on_the_working_directory_is_not_used(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", "/home/of/user")
    assert built_streams.folder() == "/home/of/user/.cache/horovod"
    monkeypatch.setenv("HOME", "home")
    assert os.path.isabs(built_streams.folder())


def test_code_that_other_users_can_write_is_unsafe(tmp_path, monkeypatch):
    path = tmp_path / "folder" / "streams.so"
    path.parent.mkdir()
    path.touch()
    path.parent.chmod(0o755)
    path.chmod(0o755)
    assert built_streams.why_unsafe(str(path)) == ""
    for each in path, path.parent:
        each.chmod(0o775)
        assert built_streams.why_unsafe(str(path)) == f"{each} may be written by other users (mode 775): " \
                                                      f"chmod go-w {each}"
        each.chmod(0o755)
    theirs = os.stat_result((*path.stat()[:4], 4321, *path.stat()[5:]))
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", lambda each: theirs)
        why = built_streams.why_unsafe(str(path))
    assert why.startswith(f"{path} belongs to user 4321, expected was this user")
