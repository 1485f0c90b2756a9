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
