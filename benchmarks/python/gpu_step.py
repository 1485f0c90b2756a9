"""What a training step on a GPU costs more with horovod.torch than without, beside DistributedDataParallel over NCCL.

    horovodrun -np 1 python benchmarks/python/gpu_step.py

One rank: nothing is reduced over a wire, so what is left is the price of hooks, agreement and packing on the host and
on the GPU. All contenders take turns in one process. Needs a torch with a GPU.
"""
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn

import horovod.torch as hvd

ROUNDS, STEPS = 7, 20


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
            model = nn.parallel.DistributedDataParallel(model, device_ids=[0], gradient_as_bucket_view=True)
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
    hvd.init()
    torch.cuda.set_device(hvd.local_rank())
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    dist.init_process_group("nccl", rank=0, world_size=1, store=dist.HashStore(),
                            device_id=torch.device("cuda", hvd.local_rank()))
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    kinds = ["alone", "horovod", "DistributedDataParallel"]
    for name, (make, batch_of) in WORKLOADS.items():
        try:
            batch = batch_of()
            contenders = {kind: Contender(kind, make, batch) for kind in kinds}
            for contender in contenders.values():
                contender.seconds_of_steps()
        except ImportError as error:
            print(f"{name}: left out, {error}")
            continue
        found = {kind: [] for kind in contenders}
        for _ in range(ROUNDS):
            for kind, contender in contenders.items():
                found[kind].append(contender.seconds_of_steps())
        alone = statistics.median(found["alone"])
        for kind in contenders:
            seconds = statistics.median(found[kind])
            more = 100 * (seconds / alone - 1)
            print(f"{name}: {kind:24} {seconds * 1e3:8.3f} ms a step, {more:+6.1f} %", flush=True)
    dist.destroy_process_group()
    hvd.shutdown()


if __name__ == "__main__":
    main()
