"""programs.py: what programs do that have GPUs, and that needs a job of its own to be seen."""
import os
import sys

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


def main():
    hvd.init()
    a_rank_without_tensors_joins_with_the_gpu_that_it_names()
    hvd.shutdown()
    print("ok", flush=True)


if __name__ == "__main__":
    sys.exit(main())
