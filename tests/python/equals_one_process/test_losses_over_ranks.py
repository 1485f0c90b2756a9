"""Losses that go through a collective, scaled as docs/pytorch.md says."""
import pytest
import torch
from training import loss


def contrast(features):
    """A loss over the features of the whole batch."""
    normal = torch.nn.functional.normalize(features, dim=1)
    return loss(normal @ normal.t() * 5, torch.arange(len(features)) // 2)


def gathered(world, model, x):
    if not world.distributed:
        return contrast(model(x))
    return contrast(world.hvd.allgather(model(x), process_set=world.process_set)) * world.size


def gathered_in_a_group(world, model, x):
    if not world.distributed:
        return contrast(model(x)) + contrast(model(-x))
    both = world.hvd.grouped_allgather([model(x), model(-x)], process_set=world.process_set)
    return sum(map(contrast, both)) * world.size


def summed(world, model, x):
    parts = [model(part) for _, part, _ in world.parts(x, x)]
    if not world.distributed:
        return sum(parts).square().mean()
    return world.hvd.allreduce(parts[0], op=world.hvd.Sum, process_set=world.process_set).square().mean()


def scattered(world, model, x):
    parts = [model(part) for _, part, _ in world.parts(x, x)]
    if not world.distributed:
        return sum(parts).square().mean()
    mine = world.hvd.reducescatter(parts[0], op=world.hvd.Sum, process_set=world.process_set)
    return mine.square().mean() / world.size


def told_by_the_root(world, model, x):
    parts = [part for _, part, _ in world.parts(x, x)]
    if not world.distributed:
        return sum((model(parts[0]) - part[:, :3]).square().mean() for part in parts) / len(parts)
    told = world.hvd.broadcast(model(parts[0]), world.root, process_set=world.process_set)
    return (told - parts[0][:, :3]).square().mean() * world.size


@pytest.mark.parametrize("way", [gathered, gathered_in_a_group, summed, scattered, told_by_the_root],
                         ids=lambda way: way.__name__)
def test_a_loss_through_a_collective(equals_one_process, way):
    def train(world):
        model = world.network()
        optimizer = world.wrap(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model)
        for x, _ in world.batches(5):
            optimizer.zero_grad()
            way(world, model, x).backward()
            optimizer.step()
        return model, optimizer

    equals_one_process(train)
