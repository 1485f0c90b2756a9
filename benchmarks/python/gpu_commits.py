"""What a commit after each step costs a training on a GPU, by the state's kind.

    horovodrun -np 1 python benchmarks/python/gpu_commits.py

A commit waits for the GPU, so the host cannot run ahead of it.
"""
import functools
import statistics

import torch
from gpu_step import WORKLOADS, Contender

import horovod.torch as hvd

ROUNDS = 5


class Committing(Contender):
    def __init__(self, live: bool, make, batch) -> None:
        super().__init__("horovod", make, batch)
        self.state = hvd.elastic.TorchState(self.model, self.optimizer, live=live, step=0)
        step = self.optimizer.step

        def step_and_commit():
            step()
            self.state.step += 1
            self.state.commit()

        self.optimizer.step = step_and_commit


def main() -> None:
    hvd.init()
    torch.cuda.set_device(hvd.local_device())
    # A step of any optimizer in the process counts for a live state, so that one comes last.
    kinds = {"no commits": functools.partial(Contender, "horovod"),
             "commits that copy": functools.partial(Committing, False),
             "live=True": functools.partial(Committing, True)}
    for name, (make, batch_of) in WORKLOADS.items():
        batch = batch_of()
        for kind, contender_of in kinds.items():
            try:
                contender = contender_of(make, batch)
            except ImportError as error:
                print(f"{name}: left out, {error}", flush=True)
                break
            contender.seconds_of_steps()
            found = statistics.median(contender.seconds_of_steps() for _ in range(ROUNDS))
            if hvd.rank() == 0:
                print(f"{name}: {kind:18} {found * 1e3:8.3f} ms a step", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
