"""What a training step on a GPU costs more with horovod.torch than without, beside DistributedDataParallel over NCCL.

    horovodrun -np 1 python benchmarks/python/gpu_step.py [--only WORD] [--rounds N]

With one rank nothing is reduced over a wire, so what is left is the price of hooks, agreement and packing on the host
and on the GPU. With more, `alone` is a step that reduces nothing. All contenders take turns in the same processes.
Behind the time of horovod stands into how many batches a step's gradients went. Needs a torch with a GPU.
"""
import argparse
import socket
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn

import horovod.torch as hvd
from horovod import _core

STEPS = 20


class ManySmallLayers(nn.Module):
    def __init__(self, layers: int = 150, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def resnet50():
    import torchvision
    return torchvision.models.resnet50().to(memory_format=torch.channels_last)


WORKLOADS = {
    "300 parameters of 64 to 4096 elements": (ManySmallLayers, lambda: torch.randn(64, 64, device="cuda")),
    "ResNet-50, 64 images, bf16 autocast": (
        resnet50, lambda: torch.randn(64, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)),
}


class Contender:
    def __init__(self, kind: str, make, batch) -> None:
        torch.manual_seed(1)
        model = make().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
        if kind == "DistributedDataParallel":
            model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        if kind == "horovod":
            optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        self.model, self.optimizer, self.batch = model, optimizer, batch

    def seconds_of_steps(self) -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(STEPS):
            self.optimizer.zero_grad()
            with torch.autocast("cuda", torch.bfloat16):
                loss = self.model(self.batch).float().square().mean()
            loss.backward()
            self.optimizer.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / STEPS


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="a word in the name of the workload")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    hvd.init()
    rank = hvd.rank()
    own = hvd.local_device()
    torch.cuda.set_device(own if own is not None else hvd.local_rank() % torch.cuda.device_count())
    host = hvd.broadcast_object(socket.gethostname(), root_rank=0)
    store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False) if rank == 0 else None
    port = hvd.broadcast(torch.tensor(store.port if store else 0), root_rank=0).item()
    store = store or dist.TCPStore(host, port, is_master=False)
    dist.init_process_group("nccl", rank=rank, world_size=hvd.size(), store=store,
                            device_id=torch.device("cuda", torch.cuda.current_device()))
    if rank == 0:
        print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, {hvd.size()} ranks")
    kinds = ["alone", "horovod", "DistributedDataParallel"]
    for name, (make, batch_of) in WORKLOADS.items():
        if options.only not in name:
            continue
        try:
            batch = batch_of()
            contenders = {kind: Contender(kind, make, batch) for kind in kinds}
            for contender in contenders.values():
                contender.seconds_of_steps()
        except ImportError as error:
            if rank == 0:
                print(f"{name}: left out, {error}")
            continue
        found = {kind: [] for kind in contenders}
        batches = _core.counter("batches")
        for _ in range(options.rounds):
            for kind, contender in contenders.items():
                found[kind].append(contender.seconds_of_steps())
        batches = (_core.counter("batches") - batches) / options.rounds / STEPS
        alone = statistics.median(found["alone"])
        for kind in contenders if rank == 0 else ():
            seconds = statistics.median(found[kind])
            more = 100 * (seconds / alone - 1)
            print(f"{name}: {kind:24} {seconds * 1e3:8.3f} ms a step, {more:+6.1f} %"
                  f"{f', {batches:.1f} batches' if kind == 'horovod' else ''}", flush=True)
    dist.destroy_process_group()
    hvd.shutdown()


if __name__ == "__main__":
    main()
