"""Gradients in one memory, gradients without autograd, gradients of zeros, and gradients that the script compresses."""
import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from training import CLASSES, FEATURES, OneProcess, loss

import horovod.torch


def train_with(world, model, compute, clip=False, **options):
    """Trains by what compute(model, x, y) leaves in the gradients."""
    optimizer = world.wrap(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model, **options)
    for x, y in world.batches():
        optimizer.zero_grad()
        compute(model, x, y)
        if clip:
            clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()
    return model, optimizer


class InOneMemory(nn.Module):
    """Autograd makes some of its gradients as parts of one tensor, or as one tensor."""

    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Parameter(torch.randn(1, FEATURES)), nn.Parameter(torch.randn(2, FEATURES))
        self.one, self.other = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))

    def forward(self, x):
        both = torch.cat([self.query, self.key])
        same = self.one.view(2, 2) + self.other.view(2, 2)
        return x @ both.t() * same.sum() + torch.stack([self.one, self.other]).prod()


@pytest.mark.parametrize("options", [{}, dict(groups=2), dict(gradient_views=True)], ids=["", "groups", "views"])
@pytest.mark.parametrize("clip", [False, True], ids=["", "clip"])
def test_gradients_that_autograd_makes_in_one_memory(equals_one_process, clip, options):
    equals_one_process(lambda world: train_with(
        world, world.network(InOneMemory), lambda model, x, y: loss(model(x), y).backward(), clip, **options))


def test_fewer_passes_with_gradients_in_one_memory(equals_one_process):
    def compute(model, x, y):
        for _ in range(2):
            loss(model(x), y).backward()

    equals_one_process(lambda world: train_with(world, world.network(InOneMemory), compute, backward_passes_per_step=3))


def test_gradients_of_frozen_parameters_that_the_script_sets(equals_one_process):
    def compute(model, x, y):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, loss(model(x), y).item()) * parameter

    equals_one_process(lambda world: train_with(world, world.network().requires_grad_(False), compute))


class InPlace(horovod.torch.compression.Compressor):
    @staticmethod
    def compress(tensor):
        return tensor.mul_(8), 8

    @staticmethod
    def decompress(tensor, ctx):
        return tensor / ctx


@pytest.mark.parametrize("options", [{}, dict(groups=2)], ids=["", "groups"])
@pytest.mark.parametrize("clip", [False, True], ids=["", "clip"])
def test_a_compressor_that_works_in_place(equals_one_process, clip, options):
    equals_one_process(lambda world: train_with(
        world, world.network(), lambda model, x, y: loss(model(x), y).backward(), clip, compression=InPlace, **options))


@pytest.mark.parametrize("who", ["rank 0", "all"])
def test_gradients_of_zeros_that_are_read_before_a_second_backward_pass(equals_one_process, who):
    """A loss may have no weight in the first steps. Its gradients are no dropped batch."""
    def train(world):
        model = world.network(lambda: nn.ModuleList([nn.Linear(FEATURES, CLASSES) for _ in range(2)]))
        weights = iter([0.0, 0.0] + 100 * [1.0])

        def compute(model, x, y):
            (next(weights) * loss(model[0](x), y)).backward()
            if who == "all" or not world.distributed or world.rank == 0:
                sum(float(parameter.grad.norm()) for parameter in model[0].parameters())
            loss(model[1](x), y).backward()

        return train_with(world, model, compute)

    equals_one_process(train)


def test_passes_of_another_loss_that_the_script_sets_to_zero_in_place(equals_one_process):
    """As in a GAN, whose generator's loss leaves gradients in the discriminator."""
    def compute(model, x, y):
        loss(model(x), 0 * y).backward()
        model.zero_grad(set_to_none=False)
        for _ in range(2):
            loss(model(x), y).backward()

    equals_one_process(lambda world: train_with(world, world.network(), compute, backward_passes_per_step=2))


def test_a_batch_of_a_group_that_is_read_and_then_set_to_zero_in_place(equals_one_process, hvd):
    """Reading has told the other ranks which gradients of the group there are."""
    def train(world):
        model = world.network(lambda: nn.Sequential(*OneProcess().network(), nn.Linear(2, 2)))
        optimizer = world.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model, groups=1, op=hvd.Sum)
        for x, y in world.batches():
            for _ in range(2):
                model.zero_grad(set_to_none=False)
                (loss(model[:3](x), y) / world.size).backward()
                sum(parameter.grad.norm().item() for parameter in model[:3].parameters())
            optimizer.step()
        return model, optimizer

    equals_one_process(train)
