"""Trains a model whose state (parameters and Adam's moments) takes 1 GB, and saves it while the training goes on.

    horovodrun -np 2 python examples/large_model.py --checkpoints run

The same command goes on where an earlier one was interrupted: by a signal, by the end of the job's time, by a crash.
The data is random, drawn anew by every rank in every step; the random numbers of all ranks go on, too.
"""
import argparse
import time

import torch

import horovod.torch as hvd

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--megabytes", type=int, default=1000, help="of the state, about (default: 1000)")
parser.add_argument("--width", type=int, default=2048, help="rows and columns of a layer (default: 2048)")
parser.add_argument("--batch-size", type=int, default=16, help="rows per rank and step (default: 16)")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--checkpoints", metavar="FOLDER", default="large-model-checkpoints")
parser.add_argument("--save-every", type=float, default=10, metavar="MINUTES", help="default: 10")
arguments = parser.parse_args()

hvd.init()
torch.manual_seed(hvd.rank())
layer_bytes = 3 * 4 * arguments.width * (arguments.width + 1)
layers = []
for _ in range(max(1, round(arguments.megabytes * 1e6 / layer_bytes))):
    layers += [torch.nn.Linear(arguments.width, arguments.width), torch.nn.Tanh()]
model = torch.nn.Sequential(*layers)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=1e-4),
                                     named_parameters=model.named_parameters())


def train():
    rows = torch.randn(arguments.batch_size, arguments.width)
    optimizer.zero_grad()
    loss = (model(rows) - rows.roll(1, dims=1)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def say(text):
    if hvd.rank() == 0:
        print(text, flush=True)


with hvd.checkpoint.Checkpointer(arguments.checkpoints, model, optimizer, every_minutes=arguments.save_every,
                                 keep=2) as checkpointer:
    done = checkpointer.restore()["step"] or 0
    say(f"{len(layers) // 2} layers on {hvd.size()} ranks" + (f", going on after step {done}" if done else ""))
    start = time.perf_counter()
    for step in range(done + 1, arguments.steps + 1):
        loss = hvd.allreduce(train(), name="loss")
        if step % 10 == 0:
            say(f"step {step:5}   loss {loss.item():.6f}")
        checkpointer.step(step)
        if checkpointer.stopped:  # the end of the block saves nothing more, and ends the program with exit code 75
            break
    else:
        if done < arguments.steps:
            checkpointer.save(arguments.steps)
    seconds = time.perf_counter() - start
    say(f"trained for {seconds:.1f} s; for checkpoints it stood still for {checkpointer.stall_seconds:.2f} s of them")
