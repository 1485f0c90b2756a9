"""An elastic training on all samples in each step, each rank on its share. Rank 0 writes each step's loss to `losses`.

LOST: "STEP RANK", several separated by semicolons: that rank is killed in that step, once in the job. SETS: ranks of a
process set that hvd.init() gets.
"""
import os
import signal

import horovod.torch as hvd
import torch

STEPS, SAMPLES = 24, 96
LOST = [tuple(map(int, each.split())) for each in os.environ.get("LOST", "").split(";") if each]

torch.manual_seed(5)
inputs, wanted = torch.randn(SAMPLES, 8), torch.randn(SAMPLES, 1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
sets = [hvd.ProcessSet([int(rank) for rank in os.environ["SETS"].split()])] if "SETS" in os.environ else None
hvd.init(process_sets=sets)
optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.02), op=hvd.Sum,
                                     named_parameters=model.named_parameters())


def end_if_lost(step):
    if (step, hvd.rank()) in LOST:
        try:
            open(f"lost.{step}", "x", encoding="utf-8").close()
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


@hvd.elastic.run
def train(state):
    while state.step < STEPS:
        mine = slice(hvd.rank(), None, hvd.size())
        state.optimizer.zero_grad()
        loss = (state.model(inputs[mine]) - wanted[mine]).square().sum() / SAMPLES
        loss.backward()
        end_if_lost(state.step)
        state.optimizer.step()
        total = hvd.allreduce(loss.detach(), op=hvd.Sum, name="loss").item()
        if hvd.rank() == 0:
            with open("losses", "a", encoding="utf-8") as losses:
                losses.write(f"{state.step} {total.hex()}\n")
        state.step += 1
        if state.step % 3 == 0:
            state.commit()


train(hvd.elastic.TorchState(model, optimizer, step=0))
