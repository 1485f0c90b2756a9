"""should_stop() sends no messages: its answer comes from the log, which the ranks read anyway."""
import torch

import horovod.torch as hvd
from horovod import _core

# The counters of everything that the ranks of a node send each other, and of what they run together.
COUNTERS = ("submissions", "requests_sent", "log_records", "log_bytes", "batches", "plans", "frames_sent")
STEPS = 200


def steps(asks):
    """Returns by how much each counter has grown."""
    gradients = [torch.ones(100), torch.ones(3000)]
    before = [_core.counter(name) for name in COUNTERS]
    for _ in range(STEPS):
        for at, gradient in enumerate(gradients):
            hvd.allreduce_(gradient, name=f"should_stop.gradient.{at}")
        if asks:
            assert not hvd.should_stop()
    return dict(zip(COUNTERS, (_core.counter(name) - then for name, then in zip(COUNTERS, before))))


def test_it_costs_no_collective_no_batch_and_no_record():
    hvd.should_stop()  # the first call begins to listen for signals
    steps(False)  # in the first step the ranks agree on names, so more is sent
    without, asking = steps(False), steps(True)
    assert asking == without
    assert without["submissions"] == without["batches"] == 2 * STEPS
