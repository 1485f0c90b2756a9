"""SyncBatchNorm on ranks, BatchNorm in one process: the statistics are those of the whole batch."""
import copy
import pickle

import torch
from training import FEATURES


def norm(world, channels, **options):
    if world.distributed:
        return world.hvd.SyncBatchNorm(channels, process_set=world.process_set, **options)
    return torch.nn.BatchNorm1d(channels, **options)


def critic(world, **options):
    def make():
        return torch.nn.Sequential(torch.nn.Linear(FEATURES, 5), norm(world, 5, **options), torch.nn.Tanh(),
                                   torch.nn.Linear(5, 1))

    model = world.network(make)
    return model, world.wrap(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model)


def test_training(equals_one_process):
    def train(world):
        model, optimizer = critic(world)
        for x, _ in world.batches():
            optimizer.zero_grad()
            (model(x) - x[:, :1]).square().mean().backward()
            optimizer.step()
        model.eval()
        return model, optimizer, model(torch.ones(2, FEATURES))

    equals_one_process(train)


def test_copies_belong_to_the_same_process_set(equals_one_process):
    def train(world):
        model, optimizer = critic(world)
        outputs = []
        for x, _ in world.batches(3):
            outputs.append(copy.deepcopy(model)(x).square().mean())
            optimizer.zero_grad()
            outputs[-1].backward()  # of the copy: the model has no gradients
            (model(x) - x[:, :1]).square().mean().backward()
            optimizer.step()
        return model, [world.average(output.detach()) for output in outputs]

    equals_one_process(train)


def test_a_gradient_penalty(equals_one_process):
    """Second derivatives, as WGAN-GP uses them."""
    def train(world):
        model, optimizer = critic(world)
        for x, _ in world.batches():
            x = x.clone().requires_grad_()
            output = model(x)
            slope, = torch.autograd.grad(output.sum(), x, create_graph=True)
            optimizer.zero_grad()
            (output.mean() + 10 * ((slope.norm(dim=1) - 1) ** 2).mean()).backward()
            optimizer.step()
        return model, optimizer

    equals_one_process(train)


class Normalised(torch.nn.Module):
    """Third derivatives of torch's own BatchNorm are wrong, because its mean and variance count as constants there."""

    def forward(self, x):
        return (x - x.mean(0)) / torch.sqrt(x.var(0, correction=0) + 1e-5)


def test_third_derivatives(equals_one_process):
    def train(world):
        model, optimizer = critic(world, affine=False, track_running_stats=False)
        if not world.distributed:
            model[1] = Normalised()
        for x, _ in world.batches(5):
            x = x.clone().requires_grad_()
            slope, = torch.autograd.grad(model(x).pow(3).sum(), x, create_graph=True)
            bend, = torch.autograd.grad(slope.square().sum(), x, create_graph=True)
            optimizer.zero_grad()
            (0.01 * bend.square().sum(1).mean()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        return model, optimizer

    equals_one_process(train)


def test_it_can_be_saved_as_an_object(hvd):
    layer = pickle.loads(pickle.dumps(hvd.SyncBatchNorm(3)))
    assert layer.process_set is hvd.global_process_set
