"""A training that loses ranks, for elastic.py: with horovod, over nodes, or with torch.distributed under torchrun.

It writes a line to the file EVENTS for each loss and for each step of a rank: "loss TIME RANK SIZE", "step TIME RANK
SIZE EPOCH HOST", and "ready TIME" when a process has imported its modules. A rank ends by SIGKILL when the job is
whole, and has been so for some steps, until there were LOSSES of them. Over nodes the job does not become whole again.
"""
import os
import signal
import socket
import sys
import time

WITH, SIZE, LOSSES, EVENTS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
VICTIM = sys.argv[5]  # "first" or "last"; "node": the benchmark cuts one off
SPARES = int(sys.argv[6])
STEPS_BEFORE = 20


def note(*words):
    with open(EVENTS, "a", encoding="utf-8") as events:
        events.write(" ".join(map(str, words)) + "\n")


def count(word):
    with open(EVENTS, encoding="utf-8") as events:
        return sum(line.startswith(word) for line in events)


def end_if_due(rank, size, steps):
    """Between steps: the others wait for this rank in the next one."""
    if size < SIZE or steps < STEPS_BEFORE or rank != {"first": 0, "last": SIZE - 1}.get(VICTIM):
        return
    losses = count("loss")
    if losses == LOSSES or count("ready") < SIZE + SPARES + losses:
        return
    if SPARES:
        time.sleep(0.5)  # the spare, which has imported its modules, calls hvd.init() meanwhile
    note("loss", time.time(), rank, size)
    os.kill(os.getpid(), signal.SIGKILL)


def model_and_optimizer():
    """Has done a step, for which torch imports parts of itself: what takes long comes before hvd.init()."""
    import torch
    model = torch.nn.Linear(1024, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    model(torch.ones(8, 1024)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


def train_with_horovod():
    import torch

    import horovod.torch as hvd
    from horovod import _core
    model, optimizer = model_and_optimizer()
    note("ready", time.time())
    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    @hvd.elastic.run
    def train(state):
        steps = 0
        while state.losses < LOSSES or hvd.size() < SIZE and WITH != "nodes" or steps < STEPS_BEFORE:
            end_if_due(hvd.rank(), hvd.size(), steps)
            state.optimizer.zero_grad()
            state.model(torch.ones(8, 1024)).square().mean().backward()
            state.optimizer.step()
            note("step", time.time(), hvd.rank(), hvd.size(), _core.elastic_facts()[0], socket.gethostname())
            steps += 1
            state.losses = int(hvd.allreduce(torch.tensor([float(count("loss"))]), op=hvd.Max, name="losses"))
            time.sleep(0.02)
            state.commit()

    train(hvd.elastic.TorchState(model, optimizer, losses=0))


def train_with_torchrun():
    import torch
    import torch.distributed as dist
    model, optimizer = model_and_optimizer()
    note("ready", time.time())
    rank, size, port, restarts = (int(os.environ[name]) for name in (
        "RANK", "WORLD_SIZE", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"))
    epoch = restarts + 1
    # torchrun's agent serves the store. With the same keys at each start, ranks would find addresses of ended ranks.
    store = dist.TCPStore(os.environ["MASTER_ADDR"], port, size, is_master=False)
    dist.init_process_group("gloo", store=dist.PrefixStore(f"start {epoch}", store), rank=rank, world_size=size)
    model = torch.nn.parallel.DistributedDataParallel(model)
    steps, losses = 0, 0
    while losses < LOSSES or steps < STEPS_BEFORE:
        end_if_due(rank, size, steps)
        optimizer.zero_grad()
        model(torch.ones(8, 1024)).square().mean().backward()
        optimizer.step()
        note("step", time.time(), rank, size, epoch)
        steps += 1
        told = torch.tensor([float(count("loss"))])
        dist.all_reduce(told, op=dist.ReduceOp.MAX)
        losses = int(told)
        time.sleep(0.02)
    dist.destroy_process_group()


train_with_torchrun() if WITH == "torchrun" else train_with_horovod()
