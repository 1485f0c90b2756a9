"""An elastic training on GPUs goes on after a loss: the ranks that stay end their NCCL communicators and make new ones
with the rank that comes in the place of the lost one.

    export HVD_JOB_FOLDER=$(mktemp -d)                                # where the ranks note who was killed
    horovodrun -np 2 --min-np 1 --max-np 2 python torch_elastic.py
    horovodrun -np 3 --min-np 1 --max-np 3 python torch_elastic.py PHASE

Without a PHASE the state copies. The lost rank is killed when its reductions are on their way on the GPU, and the
others commit after this step: their gradients are NaN then, which must not get into the commit. With a PHASE of
tests/python/elastic/live_rank.py the state is live: the rank that stays goes on with the bits on its GPU, or with its
last copy. Each rank prints `ok rank N`. It runs on the doubles of CUDA and NCCL, too.
"""
import ctypes
import os
import pathlib
import runpy
import sys

import torch

import horovod.torch as hvd

PHASE = sys.argv[1] if len(sys.argv) > 1 else None
PROGRAMS = pathlib.Path(__file__).resolve().parents[1] / "python" / "elastic"


def is_on_double():
    return "Double" in torch.cuda.get_device_name()


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
    # On a GPU the others may have got all results of the lost rank, or not. On the double it has ended a step by then.
    is_open = PHASE == "reduced" or PHASE == "step" and not is_on_double()
    begins = [test_live.STEP, test_live.STEP + 1] if is_open else [test_live.BEGINS[PHASE]]
    assert began[0] > 0 or began[1] in begins, began


def train_with_copies():
    os.environ.update(ENDS="reduced 1 2", UNTIL_SIZE="2", COMMIT="1")  # rank 1 of 2 is killed before a step
    ran = runpy.run_path(str(PROGRAMS / "train.py"), run_name="__main__")
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(ran["state"].step):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()
    for found, expected in zip(ran["model"].parameters(), model.parameters()):
        torch.testing.assert_close(found, expected)


def check_communicators(library):
    """The double counts the calls: a rank that stays makes two communicators and aborts one."""
    calls = ctypes.CDLL(library).hvd_nccl_double_calls
    calls.restype = ctypes.c_size_t
    made, aborted = calls(b"ncclCommInitRankConfig"), calls(b"ncclCommAbort")
    stayed = os.environ["HOROVOD_LOCAL_RANK"] == "0"
    assert (made, aborted) == ((2, 1) if stayed else (1, 0)), f"{made} were made, {aborted} aborted"


def main():
    os.chdir(os.environ["HVD_JOB_FOLDER"])
    torch.cuda.set_device(int(os.environ["HOROVOD_LOCAL_RANK"]) % torch.cuda.device_count())
    torch.set_default_device("cuda")
    if PHASE is not None:
        train_live()
    else:
        train_with_copies()
        if is_on_double() and os.environ.get("HOROVOD_NCCL") != "0":
            check_communicators(os.environ["HOROVOD_NCCL_LIBRARY"])
    print(f"ok rank {hvd.rank()}", flush=True)


if __name__ == "__main__":
    main()
