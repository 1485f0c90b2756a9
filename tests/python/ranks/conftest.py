"""Settings for these tests. Every rank of a job runs all of them, in the same order."""
import os

import pytest
import torch

import horovod.torch

# Jobs of two ranks run all cases of a test. Larger ones, whose ranks take turns on the processors, run the first of
# three, unless this variable is set.
ALL_CASES = "HVD_ALL_CASES"


def pytest_collection_modifyitems(config, items):
    if int(os.environ.get("HOROVOD_SIZE", 1)) <= 2 or os.environ.get(ALL_CASES):
        return
    cases, chosen, left_out = {}, [], []
    for item in items:
        function = item.nodeid.partition("[")[0]
        number = cases[function] = cases.get(function, -1) + 1
        (left_out if number % 3 else chosen).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = chosen


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
