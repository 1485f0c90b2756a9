"""A training with a live state that knows its result: the sums of its steps, whichever ranks train. One rank is killed.

PHASE: where, in the step with that number (STEP): forward; between (some gradients are reduced, others are not);
reduced (all are, or on a GPU still under way); step (the others make the step, too); behind (the others have reduced
something else after their step); commit (the others have marked it); ahead (rank 0 has marked its step, and another
rank has not made it). VICTIM: its rank. COMMITS_PER_COPY.
"""
import os
import pathlib
import signal
import time

import horovod.torch as hvd
import torch

STEPS, STEP, PHASE, VICTIM = 12, int(os.environ["STEP"]), os.environ["PHASE"], int(os.environ["VICTIM"])
hvd.init()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (torch.nn.Parameter(torch.zeros(1, dtype=torch.float64)) for _ in range(2))
        self.register_buffer("forwards", torch.zeros(1, dtype=torch.float64))

    def forward(self, number):
        self.forwards += number
        end_in("forward")
        return -number * (self.first + self.second).sum()


def end_in(phase):
    if phase != PHASE or state.step != STEP or hvd.rank() != VICTIM:
        return
    try:
        open("killed", "x", encoding="utf-8").close()
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def is_disturbed():
    return state.step == STEP and not pathlib.Path("killed").exists()


def wait_for(name):
    while not pathlib.Path(name).exists():
        time.sleep(0.001)


class State(hvd.elastic.TorchState):
    def save(self):
        super().save()
        if PHASE == "ahead" and self.step == STEP + 1 and hvd.rank() == 0:
            pathlib.Path("marked").touch()


def in_backward(gradient):
    """The gradient of the other parameter was computed first."""
    if PHASE == "between" and is_disturbed():
        hvd.barrier()  # the other gradient is on its way or reduced on all ranks
        end_in("between")


def wait_before_step(*_):
    """Rank 0 makes its step and marks it, and the others do not."""
    if PHASE == "ahead" and hvd.rank() > 0 and is_disturbed():
        wait_for("marked")
        end_in("ahead")
        hvd.allreduce(torch.ones(1), name="what the lost rank does not do")


model = Model()
optimizers = [hvd.DistributedOptimizer(torch.optim.SGD([getattr(model, name)], lr=1.0, momentum=momentum),
                                       named_parameters=[(name, getattr(model, name))])
              for name, momentum in (("first", 0.0), ("second", 0.5))]
optimizers[1].register_step_pre_hook(lambda *_: end_in("step"))
state = State(model, optimizers[0], second=optimizers[1], live=True, step=0, total=0.0,
              commits_per_copy=int(os.environ.get("COMMITS_PER_COPY", "100")))
model.first.register_hook(in_backward)
began = []


@hvd.elastic.run
def train(state):
    began.append(state.step)
    while state.step < STEPS:
        number = torch.tensor([state.step + 1.0], dtype=torch.float64)
        for each in optimizers:
            each.zero_grad()
        state.model(number).backward()
        for each in optimizers:
            each.synchronize()
        end_in("reduced")
        wait_before_step()
        for each in optimizers:
            with each.skip_synchronize():
                each.step()
        end_in("behind")
        if PHASE == "behind":
            hvd.allreduce(number, name="after the step")
        end_in("commit")
        state.total += number.item()
        state.step += 1
        state.commit()


train(state)
print("done", state.step, state.total, model.first.item(), model.second.item(), model.forwards.item(), flush=True)
print("began", *began, flush=True)
