"""Every rank of a job runs these tests in the same order. training.py explains how a test works."""
import contextlib
import os

import pytest
import torch
import training

import horovod.torch

# Short limits: if ranks wait for different operations, the test must fail with an error, and not hang.
os.environ.setdefault("HOROVOD_STALL_CHECK_TIME_SECONDS", "2")
os.environ.setdefault("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "15")


@pytest.fixture(autouse=True)
def hvd():
    training.start(horovod.torch)
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    yield horovod.torch
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="session", autouse=True)
def ranks_leave_together():
    """The first rank that leaves ends the job for all. One process set may be done earlier, so that it must wait."""
    yield
    if horovod.torch.is_initialized():
        with contextlib.suppress(horovod.torch.HorovodInternalError):
            horovod.torch.barrier()


@pytest.fixture
def equals_one_process(hvd):
    def compare(train, rtol=1e-6, atol=1e-9, warns=None):
        expected = training.run(train, training.OneProcess(training.start(hvd).size()))
        training.check(expected, training.run_on_all_ranks(hvd, train), rtol, atol, warns)
    return compare
