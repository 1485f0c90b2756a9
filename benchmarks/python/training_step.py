"""Measures whole training steps: forward, backward with averaging of gradients, update. It compares
DistributedOptimizer with DistributedDataParallel over Gloo, and with a step that does not communicate."""
import copy
import pathlib
import statistics
import time

import torch
import torch.distributed as gloo
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import horovod.torch as hvd
from ranks import Ranks, arguments, resnet50_gradients


class Sizes(nn.Module):
    """A model with parameters of ResNet-50's sizes and hardly any arithmetic: a step is mostly communication."""

    def __init__(self):
        super().__init__()
        sizes = reversed(resnet50_gradients(161, (64 << 20) // 4))
        self.weights = nn.ParameterList(nn.Parameter(torch.full((size,), 0.01)) for size in sizes)

    def forward(self, x):
        return sum((weight.sum() for weight in self.weights), torch.zeros(())) * x.mean()


def mlp():
    widths = [256, 512, 512, 10]
    layers = [layer for a, b in zip(widths, widths[1:]) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1]), torch.randn(64, 256)


def small_400():
    """A model with 400 parameters of 1 KB and 64 B. It shows the cost of a step per parameter."""
    return nn.Sequential(*[nn.Linear(16, 16) for _ in range(200)]), torch.randn(16, 16)


def mlp_10m():
    widths = [1024, 2048, 2048, 1536, 512, 10]
    layers = [layer for a, b in zip(widths, widths[1:]) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1]), torch.randn(64, 1024)


def cnn():
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                          nn.Linear(64 * 8 * 8, 128), nn.ReLU(), nn.Linear(128, 10))
    return model, torch.randn(16, 3, 32, 32)


MODELS = {"train_mlp": mlp, "train_small_400": small_400, "train_mlp_10M": mlp_10m, "train_cnn": cnn,
          "train_resnet50_sizes": lambda: (Sizes(), torch.randn(8))}


def stepper(model, optimizer, data):
    def call():
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
    return call


def train(ranks, name):
    torch.manual_seed(1)
    model, data = MODELS[name]()
    data = data + ranks.rank  # every rank has different data

    def sgd(parameters):
        return torch.optim.SGD(parameters, lr=1e-4)

    alone, by_ddp, by_us = model, copy.deepcopy(model), copy.deepcopy(model)
    ddp = DistributedDataParallel(by_ddp, gradient_as_bucket_view=True)
    optimizer = hvd.DistributedOptimizer(sgd(by_us.parameters()), named_parameters=by_us.named_parameters())
    hvd.broadcast_parameters(by_us.state_dict(), root_rank=0)
    contenders = [("ddp_gloo", stepper(ddp, sgd(by_ddp.parameters()), data)), ("ours", stepper(by_us, optimizer, data)),
                  ("alone", stepper(alone, sgd(alone.parameters()), data))]
    for _, call in contenders[:2]:
        for _ in range(3):
            call()
    equal = all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(by_ddp.parameters(), by_us.parameters()))
    parameters = [parameter.numel() for parameter in model.parameters()]
    ranks.measure({"workload": name, "bytes": 4 * sum(parameters), "tensors": len(parameters),
                   "same_parameters": equal}, contenders)
    lost = time_lost(ranks, contenders[1][1], contenders[2][1])
    ranks.record(workload="lost", model=name, tensors=len(parameters), us={}, lost_us=lost)


def engine_seconds():
    """Returns the processor time of the threads of Horovod's runtime."""
    seconds = 0.0
    for folder in pathlib.Path("/proc/self/task").iterdir():
        if folder.joinpath("comm").read_text().startswith("hvd-"):
            seconds += int(folder.joinpath("schedstat").read_text().split()[0]) / 1e9
    return seconds


def time_lost(ranks, ours, alone, steps=20):
    """Explains by how much our step is longer than a step alone, in microseconds: additional arithmetic of the main
    thread (hooks, submitting, storing), that of the engine, and the rest, which is waiting for other ranks and for a
    core."""
    rounds = []
    for _ in range(ranks.options.rounds):
        spent = []
        for step in (ours, alone):
            ranks.barrier()
            before = time.perf_counter(), time.thread_time(), engine_seconds()
            for _ in range(steps):
                step()
            after = time.perf_counter(), time.thread_time(), engine_seconds()
            spent.append([b - a for a, b in zip(before, after)])
        wall, main, engine = (1e6 * (a - b) / steps for a, b in zip(*spent))
        rounds.append((wall, main, engine, wall - main - engine))
    return dict(zip(("whole", "main_thread", "engine", "waiting"), map(statistics.median, zip(*rounds))))


def main():
    options = arguments()
    ranks = Ranks(options)
    for name in options.workloads.split(","):
        train(ranks, name)
    ranks.end()


if __name__ == "__main__":
    main()
