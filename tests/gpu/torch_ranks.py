"""Ranks of torch on GPUs: every verb on tensors in the memory of a GPU, and training that equals one process.

    horovodrun -np 2 python torch_ranks.py [name of a check …]

Needs an installed horovod and a torch with a GPU. Ranks may share a GPU (the knob HOROVOD_GPU_SHARING). Prints a line
`ok NAME`, `failed NAME: why` or `skipped NAME: why` for each check, and ends with 1 if one has failed. It runs on the
double of CUDA, too (tests/doubles/torch_cuda).
"""
import faulthandler
import importlib
import os
import pathlib
import sys
import traceback

import torch

import horovod
import horovod.torch as hvd

HERE = pathlib.Path(__file__).resolve().parent
SECONDS_FOR_A_CHECK = 40

sys.path.insert(0, str(HERE))
this_rank = importlib.import_module("torch_checks.this_rank")
for part in ("verbs", "streams", "training", "refusals"):  # in this order they run
    importlib.import_module(f"torch_checks.{part}")


def outcome_of(function):
    try:
        function()
        torch.cuda.synchronize()
        return "ok", ""
    except this_rank.Skipped as why:
        return "skipped", str(why)
    except Exception as error:
        if os.environ.get("TRACE"):
            traceback.print_exc()
        frames = [(pathlib.Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        of_check = [f" in {path.name}, line {line}" for path, line in frames
                    if path.parent == HERE / "torch_checks" and path.stem != "this_rank"]
        return "failed", f"{type(error).__name__}{of_check[-1] if of_check else ''}: {error}"


def run(function):
    """Runs a check on all ranks, and prints what came out. True if no rank has failed."""
    faulthandler.dump_traceback_later(SECONDS_FOR_A_CHECK * (5 if this_rank.is_double else 1), exit=True)
    outcome, why = outcome_of(function)
    problems = this_rank.of_all_ranks(why if outcome == "failed" else "")
    faulthandler.cancel_dump_traceback_later()
    failed = [f"rank {rank}: {problem}" for rank, problem in enumerate(problems) if problem]
    if this_rank.RANK == 0:
        if failed:
            print(f"failed {function.__name__}: {'; '.join(failed)}", flush=True)
        else:
            print(f"{outcome} {function.__name__}{': ' + why if why else ''}", flush=True)
    return not failed


def main():
    wanted = sys.argv[1:]
    unknown = set(wanted) - {function.__name__ for function in this_rank.CHECKS}
    if unknown:
        sys.exit(f"no check is named {', '.join(sorted(unknown))}")
    if this_rank.RANK == 0:
        print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, {this_rank.SIZE} ranks, "
              f"horovod {horovod.__version__}, plugin for GPUs: {hvd.cuda_built()}, the GPU of rank 0: "
              f"{hvd.local_device()}", flush=True)
    results = [run(function) for function in this_rank.CHECKS if not wanted or function.__name__ in wanted]
    hvd.shutdown()
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
