"""Compression by filters that HDF5 finds in a folder of plugins; hdf5plugin of PyPI brings one."""
import os
import subprocess
import sys

import pytest

hdf5plugin = pytest.importorskip("hdf5plugin")
h5py = pytest.importorskip("h5py")

PROGRAM = """
import sys, torch, horovod.torch as hvd
hvd.init()
path, compression = sys.argv[1:]
model, fresh = torch.nn.Linear(2000, 500), torch.nn.Linear(2000, 500)
model.weight.data.fill_(0.5)
hvd.checkpoint.save(path, model, step=1, compression=compression)
hvd.checkpoint.restore(path, fresh)
assert torch.equal(model.weight, fresh.weight)
"""


@pytest.mark.parametrize("compression, number", [("zstd", "32015"), ("zstd:9", "32015"), ("lz4", "32004")])
def test_a_filter_of_hdf5plugin_is_used_and_read_by_h5py(compression, number, tmp_path):
    path = tmp_path / "a.h5"
    ran = subprocess.run([sys.executable, "-c", PROGRAM, str(path), compression], capture_output=True, text=True,
                         timeout=100, env={**os.environ, "HDF5_PLUGIN_PATH": hdf5plugin.PLUGIN_PATH})
    assert ran.returncode == 0, ran.stderr
    assert os.path.getsize(path) < 1_000_000  # the tensors take 4 MB uncompressed
    with h5py.File(path) as file:
        weight = file["model/weight"]
        assert number in weight._filters
        assert (weight[()] == 0.5).all()
