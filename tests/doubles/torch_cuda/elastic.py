"""elastic.py [PHASE]: an elastic training on GPUs goes on after a loss. Ranks that stay abort their NCCL communicators
and make new ones with the rank that comes in the place of the lost one. With a PHASE of tests/python/elastic/
live_rank.py its state is live: the rank that stays goes on with the bits on its GPU, or with its last copy."""
import ctypes
import os
import pathlib
import runpy
import sys

PHASE = sys.argv[1] if len(sys.argv) > 1 else None
os.environ["HOROVOD_NCCL"] = "1"  # an error where NCCL cannot be used
os.environ["ENDS"] = "step 1 2"  # rank 1 of 2 is killed in a step
os.environ["UNTIL_SIZE"] = "2"

import on_host  # noqa: F401, E402
import torch  # noqa: E402

PROGRAMS = pathlib.Path(__file__).resolve().parents[2] / "python" / "elastic"


def train_live():
    sys.path.insert(0, str(PROGRAMS))
    import test_live
    os.environ.update(PHASE=PHASE, STEP=str(test_live.STEP), VICTIM="2", COMMITS_PER_COPY="5")
    ran = runpy.run_path(str(PROGRAMS / "live_rank.py"), run_name="__main__")
    model, state, began = ran["model"], ran["state"], ran["began"]
    tensors = model.first, model.second, model.forwards
    assert {each.device.type for each in tensors} == {"cuda"}
    found = " ".join(map(str, ("done", state.step, state.total, *(each.item() for each in tensors))))
    assert found == test_live.result(), found
    torch.cuda.set_sync_debug_mode("error")
    state.save()  # a mark does not wait for the GPU
    torch.cuda.set_sync_debug_mode("default")
    assert began[0] > 0 or began[1] == test_live.BEGINS[PHASE], began


def main():
    os.chdir(os.environ["HVD_JOB_FOLDER"])  # where the program notes who was killed once
    torch.cuda.set_device(int(os.environ["HOROVOD_LOCAL_RANK"]))
    torch.set_default_device("cuda")
    if PHASE is not None:
        train_live()
        return print("ok", flush=True)
    runpy.run_path(str(PROGRAMS / "train.py"), run_name="__main__")
    calls = ctypes.CDLL(os.environ["HOROVOD_NCCL_LIBRARY"]).hvd_nccl_double_calls
    calls.restype = ctypes.c_size_t
    made, aborted = calls(b"ncclCommInitRankConfig"), calls(b"ncclCommAbort")
    stayed = os.environ["HOROVOD_LOCAL_RANK"] == "0"
    assert (made, aborted) == ((2, 1) if stayed else (1, 0)), f"{made} were made, {aborted} aborted"
    print("ok", flush=True)


if __name__ == "__main__":
    main()
