"""staged.py REASON: tensors on GPUs that no plugin takes. The numbers are right nevertheless, and the user is told why
it is slow, once.

REASON: second (a rank has tensors on two GPUs), rocm (a torch for AMD's GPUs, without a plugin for them), nothing
(Horovod was installed without a plugin for GPUs).
"""
import atexit
import contextlib
import ctypes
import io
import os
import pathlib
import shutil
import sys
import tempfile

import on_host  # noqa: F401
import torch

REASONS = {"second": ["cuda:{own}", "cuda:{other}", "a rank has one GPU"],
           "rocm": ["without a plugin for the GPUs of this torch (rocm)"],
           "nothing": ["without a plugin for the GPUs of this torch (cuda)"]}


def hide_plugins():
    """Loads Horovod's core from a folder that has no plugin for GPUs."""
    libraries = pathlib.Path(os.environ["HOROVOD_CUDA_DRIVER"]).parents[2] / "lib"
    folder = tempfile.mkdtemp(prefix="staged-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for library in libraries.glob("libhorovod*"):
        if library.name not in ("libhorovod_cuda.so", "libhorovod_nccl.so"):
            shutil.copy(library, folder)
    ctypes.CDLL(f"{folder}/libhorovod.so.1")


def prepare(reason):
    if reason == "nothing":
        hide_plugins()
    if reason == "rocm":
        torch.version.hip = "6.4"
    import horovod.torch as hvd
    hvd.init()
    return hvd


def use_verbs(hvd, device):
    """On a stream of its own, on which the program goes on."""
    torch.cuda.set_device(device)
    of_all = range(hvd.size())
    stream = torch.cuda.Stream()
    for step in range(3):
        with torch.cuda.stream(stream):
            in_place = torch.full((4000,), hvd.rank() + 1.0 + step, device=device)
            handle = hvd.allreduce_async_(in_place, name="in place", op=hvd.Sum)
            rows = hvd.allgather(torch.full((hvd.rank() + 1, 3), float(hvd.rank()), device=device), name="rows")
            group = hvd.grouped_allreduce([torch.ones(5, device=device), torch.ones(7, device=device)], op=hvd.Sum)
            hvd.synchronize(handle)
            in_place += 1
        torch.cuda.current_stream().wait_stream(stream)
        assert in_place.device == rows.device == group[0].device == torch.device(device)
        assert in_place.tolist() == [sum(rank + 1.0 + step for rank in of_all) + 1] * 4000
        assert rows.tolist() == [[float(rank)] * 3 for rank in of_all for _ in range(rank + 1)]
        assert [each.tolist() for each in group] == [[float(hvd.size())] * 5, [float(hvd.size())] * 7]


def main(reason):
    hvd = prepare(reason)
    own = hvd.rank() % torch.cuda.device_count()
    other = (own + 1) % torch.cuda.device_count()
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        if reason == "second":
            use_verbs(hvd, f"cuda:{own}")
            assert told.getvalue() == "", told.getvalue()
        use_verbs(hvd, f"cuda:{other}")
    lines = told.getvalue().splitlines()
    if reason != "second" and hvd.rank() != 0:  # the same holds for all ranks
        assert lines == [], lines
    else:
        assert len(lines) == 1 and "are copied through the host's memory, which is slow" in lines[0], lines
        for part in REASONS[reason]:
            assert part.format(own=own, other=other) in lines[0], lines
    hvd.shutdown()
    print("ok", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
