"""Settings for these tests. Every rank of a job runs all of them, in the same order."""
import pytest
import torch

import horovod.torch


@pytest.fixture(autouse=True)
def hvd():
    """Horovod, initialised. The ranks begin and end each test together, so that a failure does not affect other
    tests."""
    horovod.torch.init()
    torch.manual_seed(1234)
    horovod.torch.barrier()
    yield horovod.torch
    if horovod.torch.is_initialized():
        horovod.torch.barrier()


@pytest.fixture
def rank(hvd):
    return hvd.rank()


@pytest.fixture
def size(hvd):
    return hvd.size()
