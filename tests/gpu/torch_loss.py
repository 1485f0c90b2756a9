"""A rank of torch is lost while all train on GPUs: the others get an error that names it, and nothing hangs.

    horovodrun -np 2 python torch_loss.py kill|assert

`kill`: the last rank is killed in the middle of a step. `assert`: a kernel of the last rank fails (a device-side
assert),
which takes its whole context with it. Each other rank prints `ok rank N: ...` with the error that it got, or
`failed rank N: why`; in `assert` the last rank does so, too.
"""
import os
import signal
import sys
import time

import torch

import horovod.torch as hvd

SECONDS = 60  # until the launcher's own limits, none of which is needed here
LOST_IN_STEP = 5


def main() -> None:
    way = sys.argv[1]
    hvd.init()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher knows of the loss first, and gives a rank some seconds
    slower = 4 if "Double" in torch.cuda.get_device_name() else 1
    signal.alarm(SECONDS * slower)
    rank, last = hvd.rank(), hvd.size() - 1
    device = hvd.local_device()
    torch.cuda.set_device(device if device is not None else hvd.local_rank() % torch.cuda.device_count())
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(20)]).cuda()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01),
                                         named_parameters=model.named_parameters())
    try:
        for step in range(1000):
            begin = time.monotonic()
            if rank == last and step == LOST_IN_STEP:
                print(f"rank {rank} is lost", flush=True)
                if way == "kill":
                    model[10].weight.register_hook(lambda gradient: os.kill(os.getpid(), signal.SIGKILL))
                else:
                    torch.arange(3, device="cuda")[torch.tensor([1000], device="cuda")].sum()
            optimizer.zero_grad()
            model(torch.randn(64, 256, device="cuda")).square().mean().backward()
            optimizer.step()
            torch.cuda.synchronize()
    except Exception as error:
        text = " ".join(str(error).split())
        names_it = isinstance(error, hvd.HorovodInternalError) and f"rank {last}" in text
        # MPS takes the contexts of all processes that it serves with the one that was killed.
        names_it = names_it or ("CUDA_MPS_PIPE_DIRECTORY" in os.environ and "With MPS" in text)
        right = names_it or (rank == last and way == "assert")  # cuBLAS gives its failures other names
        print(f"{'ok' if right and step == LOST_IN_STEP else 'failed'} rank {rank} in step {step} after "
              f"{time.monotonic() - begin:.1f} s: {type(error).__name__}: {text[:600]}", flush=True)
        os._exit(1)
    print(f"failed rank {rank}: it has not been told of the loss", flush=True)
    os._exit(1)


if __name__ == "__main__":
    main()
