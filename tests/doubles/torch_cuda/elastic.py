"""elastic.py: an elastic training on GPUs goes on after a loss. Ranks that stay abort their NCCL communicators and make
new ones with the rank that comes in the place of the lost one."""
import ctypes
import os
import pathlib
import runpy

os.environ["HOROVOD_NCCL"] = "1"  # an error where NCCL cannot be used
os.environ["ENDS"] = "step 1 2"  # rank 1 of 2 is killed in a step
os.environ["UNTIL_SIZE"] = "2"

import on_host  # noqa: F401, E402
import torch  # noqa: E402

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "python" / "elastic" / "train.py"


def main():
    os.chdir(os.environ["HVD_JOB_FOLDER"])  # where the program notes who was killed once
    torch.cuda.set_device(int(os.environ["HOROVOD_LOCAL_RANK"]))
    torch.set_default_device("cuda")
    runpy.run_path(str(PROGRAM), run_name="__main__")
    calls = ctypes.CDLL(os.environ["HOROVOD_NCCL_LIBRARY"]).hvd_nccl_double_calls
    calls.restype = ctypes.c_size_t
    made, aborted = calls(b"ncclCommInitRankConfig"), calls(b"ncclCommAbort")
    stayed = os.environ["HOROVOD_LOCAL_RANK"] == "0"
    assert (made, aborted) == ((2, 1) if stayed else (1, 0)), f"{made} were made, {aborted} aborted"
    print("ok", flush=True)


if __name__ == "__main__":
    main()
