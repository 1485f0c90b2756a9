"""programs.py: what programs do that have GPUs, and that needs a job of its own to be seen."""
import json
import os
import pathlib
import sys
import tempfile

os.environ["HOROVOD_NCCL"] = "1"  # an error where NCCL cannot be used: as when two ranks were on one GPU

import on_host  # noqa: F401, E402
import torch  # noqa: E402

import horovod.torch as hvd  # noqa: E402


def a_rank_without_tensors_joins_with_the_gpu_that_it_names():
    if hvd.rank() == 0:
        found = hvd.allreduce(torch.ones(5, device="cuda:0"), op=hvd.Sum, name="of one rank")
        assert found.tolist() == [1.0] * 5
        hvd.join(torch.device("cuda", 1))  # the tensor has decided
    else:
        hvd.join(device=1)
    found = hvd.allreduce(torch.ones(5, device=f"cuda:{hvd.rank()}"), op=hvd.Sum, name="of both")
    assert found.tolist() == [2.0] * 5


def a_rank_without_tensors_joins_with_the_gpu_that_is_current():
    torch.cuda.set_device(hvd.rank())
    if hvd.rank() == 0:
        hvd.allreduce(torch.ones(5, device="cuda"), op=hvd.Sum, name="of one rank")
    hvd.join()
    found = hvd.allreduce(torch.ones(5, device="cuda"), op=hvd.Sum, name="of both")
    assert found.tolist() == [2.0] * 5


def the_timeline_shows_the_stages_of_a_batch_on_the_gpu():
    tensors = [torch.ones(count, device=f"cuda:{hvd.rank()}") for count in (5, 7)]
    found = hvd.grouped_allreduce(tensors, op=hvd.Sum, name="packed")
    assert [each.tolist() for each in found] == [[2.0] * 5, [2.0] * 7]
    hvd.allgather(tensors[0], name="as it is")
    torch.cuda.synchronize()


def check_timeline(path, rank):
    events = json.loads(pathlib.Path(path).read_text())
    rows = {event["args"]["name"]: event["pid"] for event in events if event.get("name") == "process_name"
            and "name" in event["args"]}

    def names(row, phase):
        return [event["name"] for event in events if event["pid"] == rows[row] and event["ph"] == phase]

    first = names("grouped_allreduce.packed_1of2", "B")
    assert first[:2] == ["NEGOTIATE_ALLREDUCE", "ALLREDUCE"] and first[-1] == "NCCL_ALLREDUCE", first
    assert "INIT_NCCL" in first, first
    stages = names(f"cuda device {rank}", "b")
    assert stages[1:5] == ["WAIT_FOR_DATA", "MEMCPY_IN_FUSION_BUFFER", "NCCL_ALLREDUCE",
                           "MEMCPY_OUT_FUSION_BUFFER"], stages
    assert stages[-2:] == ["WAIT_FOR_DATA", "NCCL_ALLGATHER"], stages
    assert sorted(names(f"cuda device {rank}", "e")) == sorted(stages)


def main():
    for program in (a_rank_without_tensors_joins_with_the_gpu_that_it_names,
                    a_rank_without_tensors_joins_with_the_gpu_that_is_current):
        hvd.init()
        program()
        hvd.shutdown()
    with tempfile.TemporaryDirectory() as folder:
        path = os.environ["HOROVOD_TIMELINE"] = f"{folder}/timeline"
        os.environ["HOROVOD_TIMELINE_ALL_RANKS"] = "1"
        hvd.init()
        rank = hvd.rank()
        the_timeline_shows_the_stages_of_a_batch_on_the_gpu()
        check = path if rank == 0 else f"{path}.{rank}"
        hvd.shutdown()
        check_timeline(check, rank)
    print("ok", flush=True)


if __name__ == "__main__":
    sys.exit(main())
