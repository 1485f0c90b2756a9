"""beside_ddp.py: torch's own DistributedDataParallel, over its ProcessGroupNCCL, and DistributedOptimizer, both on the
doubles of CUDA and NCCL, train to the same numbers."""
import os
import sys
import tempfile

import on_host  # noqa: F401
import torch
import torch.distributed as dist
from torch.nn import functional

import horovod.torch as hvd

STEPS, ROWS = 6, 8


def model_and_optimizer():
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).cuda()
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train(model, optimizer, of_all=False):
    """Returns the parameters after some steps on this rank's rows, or on those of all ranks."""
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        x, y = (torch.randn(ROWS * hvd.size(), n, generator=generator) for n in (8, 4))
        if not of_all:
            x, y = (each[hvd.rank() * ROWS:(hvd.rank() + 1) * ROWS] for each in (x, y))
        optimizer.zero_grad()
        functional.mse_loss(model(x.cuda()), y.cuda()).backward()
        optimizer.step()
    return torch.cat([parameter.detach().cpu().flatten() for parameter in model.parameters()])


def main():
    hvd.init()
    torch.cuda.set_device(hvd.local_rank())
    model, optimizer = model_and_optimizer()
    of_one_process = train(model, optimizer, of_all=True)

    folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)
    dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=hvd.rank(), world_size=hvd.size(),
                            device_id=torch.device("cuda", hvd.local_rank()))
    model, optimizer = model_and_optimizer()
    parallel = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.0002)
    of_ddp = train(parallel, optimizer)
    torch.cuda.synchronize()
    dist.destroy_process_group()

    model, optimizer = model_and_optimizer()
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    ours = train(model, optimizer)
    for name, found in (("DDP", of_ddp), ("DistributedOptimizer", ours)):
        difference = float((found - of_one_process).abs().max())
        print(f"rank {hvd.rank()}: {name} differs from one process by {difference:.1e}", flush=True)
        assert difference < 1e-6
    hvd.barrier()
    if hvd.rank() == 0:
        os.path.exists(f"{folder}/store") and os.remove(f"{folder}/store")
        os.rmdir(folder)
    hvd.shutdown()
    print("ok", flush=True)


if __name__ == "__main__":
    sys.exit(main())
