"""What a commit after each step costs a training on a GPU, by the state's kind.

    horovodrun -np 1 python benchmarks/python/gpu_commits.py

A step waits for the GPU before it commits, so the host cannot run ahead of it.
"""
import statistics

import torch
from gpu_step import STEPS, WORKLOADS, Contender

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
    for name, (make, batch_of) in WORKLOADS.items():
        try:
            make()
        except ImportError as error:
            print(f"{name}: left out, {error}", flush=True)
            continue
        batch = batch_of()
        contenders = {"no commits": Contender("horovod", make, batch),
                      "commits that copy": Committing(False, make, batch)}
        for contender in contenders.values():
            contender.seconds_of_steps()
        # A step of any optimizer in the process counts for a live state, so it has turns of its own.
        alone = [contenders["no commits"].seconds_of_steps() for _ in range(ROUNDS)]
        copying = [contenders["commits that copy"].seconds_of_steps() for _ in range(ROUNDS)]
        live = Committing(True, make, batch)
        live.seconds_of_steps()
        marking = [live.seconds_of_steps() for _ in range(ROUNDS)]
        del live
        for kind, found in (("no commits", alone), ("commits that copy", copying), ("live=True", marking)):
            if hvd.rank() == 0:
                print(f"{name}: {kind:18} {statistics.median(found) * 1e3:8.3f} ms a step of {STEPS}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
