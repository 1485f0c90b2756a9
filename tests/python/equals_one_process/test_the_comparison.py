"""Tests of the comparison in training.py: it finds differences, and the job goes on after a single rank has failed."""
import warnings

import pytest
import torch
from training import loss


def test_ranks_that_average_nothing_differ(equals_one_process):
    def train(world):
        model = world.network()
        world.begin(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in world.batches():
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
        return model

    with pytest.raises(AssertionError, match="rank 1 differs from rank 0"):
        equals_one_process(train)


def test_ranks_that_are_equal_and_wrong_differ_from_one_process(equals_one_process):
    def train(world):
        model = world.network()
        optimizer = world.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
        for x, y in world.batches():
            optimizer.zero_grad()
            (loss(model(x), y) * (1.001 if world.distributed else 1.0)).backward()
            optimizer.step()
        return model

    with pytest.raises(AssertionError, match="differs from one process"):
        equals_one_process(train)


@pytest.mark.fails_on_purpose
def test_a_rank_that_fails_alone_is_named_on_all(equals_one_process):
    def train(world):
        model = world.network()
        optimizer = world.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
        for step, (x, y) in enumerate(world.batches()):
            optimizer.zero_grad()
            loss(model(x), y).backward()
            if world.distributed and world.rank == 1 and step == 3:
                raise ValueError("rank 1 alone")
            optimizer.step()
        return model

    with pytest.raises(AssertionError, match="ValueError: rank 1 alone"):
        equals_one_process(train)


def test_a_warning_that_one_process_does_not_give(equals_one_process):
    def train(world):
        if world.rank == 1:
            warnings.warn("of rank 1")

    with pytest.raises(AssertionError, match="rank 1 warns, one process does not: UserWarning: of rank 1"):
        equals_one_process(train)
