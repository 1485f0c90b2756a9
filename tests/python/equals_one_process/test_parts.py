"""Models with a part that all ranks share and parts of a rank's own: stages, experts, heads for a rank's own task."""
import contextlib

import pytest
import torch
from training import CLASSES, FEATURES, kind_of_device, loss


class Parts:
    """A trunk that all ranks share, and a head for each rank. One process has all heads."""

    def __init__(self, world, op):
        self.world = world
        self.trunk = world.network(torch.nn.Linear, FEATURES, 5)
        self.heads = {}
        for rank in range(world.ranks):
            torch.manual_seed(50 + rank)
            head = torch.nn.Linear(5, CLASSES)
            if rank == world.rank or not world.distributed:
                self.heads[rank] = head
        self.of_trunk = world.wrap(torch.optim.SGD(self.trunk.parameters(), lr=0.1), self.trunk, op=op)
        self.of_heads = {rank: torch.optim.SGD(head.parameters(), lr=0.1) for rank, head in self.heads.items()}

    def backward(self, batch, scaler):
        parts = [each for each in self.world.parts(*batch) if each[0] in self.heads]
        values = [loss(self.heads[rank](self.trunk(x).tanh()), y) for rank, x, y in parts]
        scaler.scale(sum(values) / self.world.ranks).backward()

    def result(self):
        """The trunk, and a number that every head has a part in."""
        size = sum(head.weight.abs().sum() for head in self.heads.values()) / len(self.heads)
        return self.trunk, self.of_trunk, self.world.average(float(size))


def overflow(head):
    head.weight.grad[0, 0] = torch.inf


@pytest.mark.parametrize("steps_of_trunk", [1, 3], ids=["", "the trunk steps seldom"])
@pytest.mark.parametrize("clip", [False, True], ids=["", "unscale_ and clip"])
def test_one_scaler_and_an_overflow_in_one_rank_s_own_part(equals_one_process, hvd, clip, steps_of_trunk):
    def train(world):
        parts = Parts(world, hvd.Sum)
        scaler = torch.amp.GradScaler(kind_of_device(), init_scale=1024.0, growth_interval=3)
        scales = []
        for step, batch in enumerate(world.batches()):
            steps_now = step % steps_of_trunk == 0
            if steps_now:
                parts.of_trunk.zero_grad()
            for optimizer in parts.of_heads.values():
                optimizer.zero_grad()
            parts.trunk.requires_grad_(steps_now)
            parts.backward(batch, scaler)
            if step in (2, 3, 9):
                last = world.ranks - 1
                if last in parts.heads:
                    overflow(parts.heads[last])
            for optimizer in (*([parts.of_trunk] if steps_now else []), *parts.of_heads.values()):
                if clip:
                    scaler.unscale_(optimizer)
                    torch.nn.utils.clip_grad_value_(optimizer.param_groups[0]["params"], 0.01)
                scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        assert len(set(scales)) > 3, scales
        return parts.result(), scales

    equals_one_process(train)


def test_the_trunk_and_the_heads_in_another_order_on_every_rank(equals_one_process):
    """Two optimizers of shared parameters. Every rank has all gradients after backward()."""
    def train(world):
        models = [world.network(), world.network(torch.nn.Linear, FEATURES, CLASSES)]
        optimizers = [world.wrap(torch.optim.Adam(model.parameters(), lr=0.01), model) for model in models]
        for step, (x, y) in enumerate(world.batches()):
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss(models[0](x) + models[1](x), y).backward()
            for optimizer in optimizers if (step + world.rank) % 2 else optimizers[::-1]:
                optimizer.step()
        return models, optimizers

    equals_one_process(train)


class Experts(torch.nn.ModuleList):
    def __init__(self, count):
        super().__init__(torch.nn.Linear(FEATURES, CLASSES) for _ in range(count))


@pytest.mark.parametrize("synchronized", [False, True], ids=["at once", "after synchronize"])
def test_experts_of_a_rank_whose_gradients_are_read_for_a_log(equals_one_process, monkeypatch, synchronized):
    monkeypatch.setattr("horovod.torch.gradients.PATIENCE_SECONDS", 0.1)

    def train(world):
        experts = world.network(Experts, world.ranks)
        optimizer = world.wrap(torch.optim.SGD(experts.parameters(), lr=0.1, weight_decay=0.01), experts)
        for step, batch in enumerate(world.batches()):
            optimizer.zero_grad()
            parts = world.parts(*batch)
            values = [loss(experts[(rank + step // 5) % world.ranks](x), y) for rank, x, y in parts]
            (sum(values) / len(values)).backward()
            if synchronized:
                world.synchronize(optimizer)
            sum(parameter.grad.norm() for parameter in experts.parameters() if parameter.grad is not None)
            with world.skip_synchronize(optimizer) if synchronized else contextlib.nullcontext():
                optimizer.step()
        return experts, optimizer

    equals_one_process(train, warns="was used before optimizer.step()")


@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_a_parameter_of_two_optimizers(equals_one_process, hvd, op):
    """Two tasks share a trunk, and each has an optimizer. Each rank has batches of one task only."""
    def train(world):
        model = torch.nn.ModuleList([world.network(torch.nn.Linear, FEATURES, 5),
                                     *(world.network(torch.nn.Linear, 5, CLASSES) for _ in range(2))])
        optimizers = []
        for task in (1, 2):
            of_task = torch.nn.ModuleDict({"trunk": model[0], f"head{task}": model[task]})
            optimizers.append(world.wrap(torch.optim.SGD(of_task.parameters(), lr=0.1), of_task, op=getattr(hvd, op)))
        for step, batch in enumerate(world.batches()):
            for optimizer in optimizers:
                optimizer.zero_grad()
            parts = world.parts(*batch)
            values = [loss(model[1 + (rank + step) % 2](model[0](x).tanh()), y) for rank, x, y in parts]
            (sum(values) / (len(values) if op == "Average" else world.ranks)).backward()
            for optimizer in optimizers:
                optimizer.step()
        return model, optimizers

    equals_one_process(train)
