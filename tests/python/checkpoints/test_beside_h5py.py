"""Checkpoints in a process that has both our HDF5 library and h5py's, and on a machine without any HDF5 library."""
import os
import pathlib
import subprocess
import sys

import pytest

h5py = pytest.importorskip("h5py")

BESIDE_H5PY = """
import sys
first, path = sys.argv[1:]
def use_h5py():
    import h5py
    with h5py.File(path + ".other", "w") as file:
        file["x"] = [1.5, 2.5]
    with h5py.File(path + ".other") as file:
        assert file["x"][1] == 2.5
    return h5py
def use_ours():
    import torch, horovod.torch as hvd
    hvd.init()
    model = torch.nn.Linear(300, 10)
    hvd.checkpoint.save(path, model, step=3)
    assert hvd.checkpoint.restore(path, torch.nn.Linear(300, 10))["step"] == 3
(use_h5py if first == "h5py" else use_ours)()
use_ours()
h5py = use_h5py()
use_ours()
with h5py.File(path) as file:
    assert file.attrs["step"] == 3
print("whole")
"""


def library_of_h5py():
    folder = pathlib.Path(h5py.__file__).parent.parent / "h5py.libs"
    return next(iter(sorted(folder.glob("libhdf5-*.so*"))), None)


@pytest.mark.parametrize("first", ["h5py", "ours"])
@pytest.mark.parametrize("library", ["the system's", "h5py's"])
def test_h5pys_own_copy_may_be_in_the_process(first, library, tmp_path):
    environment = dict(os.environ)
    if library == "h5py's":
        if library_of_h5py() is None:
            pytest.skip("this h5py uses the system's library")
        environment["HOROVOD_HDF5"] = str(library_of_h5py())
    ran = subprocess.run(
        [sys.executable, "-c", BESIDE_H5PY, first, str(tmp_path / "a.h5")],
        capture_output=True,
        text=True,
        env=environment,
        timeout=100)
    assert ran.returncode == 0 and ran.stdout == "whole\n", ran.stderr


def test_without_any_library_the_error_says_what_to_install(tmp_path):
    program = "import horovod.torch as hvd; hvd.init(); hvd.checkpoint.save('a.h5')"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=100,
                         env={**os.environ, "HOROVOD_HDF5": "/not/there.so"})
    assert ran.returncode != 0
    assert "checkpoints need an HDF5 library" in ran.stderr and "/not/there.so" in ran.stderr, ran.stderr
