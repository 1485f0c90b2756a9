"""A plugin of pytest (-p on_gpus): tests that were written for the host run with tensors on GPUs, of the double or
real ones.

torch's default device is the rank's GPU, so what a test makes without naming a device is there.
ON_GPUS=FILE: only the functions that the file lists, of each with one set of its parameters: always the same one, and
not the same one of different functions.
RANKS_OF_A_NODE=2: ranks 0 and 1 are on a node, ranks 2 and 3 on another one.
"""
import os
import pathlib
import zlib

import torch

if "Double" in torch.cuda.get_device_name():
    import on_host  # noqa: F401  (operators of torch are computed on the host from here on)
else:
    class _GeneratorOnGpu(torch.Generator):
        """What a generator draws for tensors of a GPU, it must draw there."""

        def __new__(cls, device="cuda"):
            return super().__new__(cls, device)

    torch.Generator = _GeneratorOnGpu

_rank = int(os.environ.get("HOROVOD_RANK", 0))
if "RANKS_OF_A_NODE" in os.environ:
    os.environ["HOROVOD_FAKE_NODE"] = str(_rank // int(os.environ["RANKS_OF_A_NODE"]))
torch.cuda.set_device(_rank % torch.cuda.device_count())
torch.set_default_device("cuda")


def pytest_collection_modifyitems(items):
    if "ON_GPUS" not in os.environ:
        return
    wanted = pathlib.Path(os.environ["ON_GPUS"]).read_text().split()
    sets = {}
    for item in items:
        name = f"{item.path.name}::{item.originalname}"
        if name in wanted:
            sets.setdefault(name, []).append(item)
    missing = set(wanted) - set(sets)
    if missing:
        raise RuntimeError(f"{os.environ['ON_GPUS']} lists what is no test: {', '.join(sorted(missing))}")
    items[:] = [each[zlib.crc32(name.encode()) % len(each)] for name, each in sets.items()]
