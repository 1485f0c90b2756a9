"""A program may use new names, shapes and scales without end. The memory for them is bounded, and operations that are
used again are still found."""
import gc

import pytest
import torch

from horovod import _core, _ops

MOST = 50


@pytest.fixture
def small_tables(hvd, monkeypatch):
    hvd.shutdown()  # drops everything that earlier tests have prepared
    monkeypatch.setenv("HOROVOD_CACHE_CAPACITY", "20")
    monkeypatch.setattr(_ops, "operations", _ops.RecentlyUsed(MOST))
    monkeypatch.setattr(_ops, "MOST_OPERATIONS", MOST)
    monkeypatch.setattr(_ops, "_remembered", 0)
    hvd.init()
    yield
    hvd.shutdown()
    monkeypatch.undo()
    hvd.init()


def is_bounded():
    # The two tables and the slots keep operations. A call that is about to return keeps its own for a moment, too.
    return (len(_ops.operations) <= MOST and len(_ops.latest) <= MOST
            and _core.counter("operations") <= 2 * MOST + MOST + 20 + 2)


@pytest.mark.parametrize("use", [
    lambda hvd, i: hvd.allreduce(torch.ones(3), name=f"name.{i}"),
    lambda hvd, i: hvd.allreduce(torch.ones(i + 1), name="shape"),
    lambda hvd, i: hvd.allreduce(torch.ones(3), name="scale", postscale_factor=1.0 / (i + 1)),
    lambda hvd, i: hvd.grouped_allreduce([torch.ones(3)] * 4, name=f"group.{i}"),
    lambda hvd, i: hvd.allgather(torch.ones(3), name=f"gathered.{i}"),
    lambda hvd, i: hvd.broadcast_object("x" * i, name=f"object.{i % 3}"),
], ids=["names", "shapes", "scales", "groups", "gathers", "objects"])
def test_what_does_not_come_again_is_forgotten(hvd, small_tables, use):
    for i in range(600):
        use(hvd, i)
    assert is_bounded()


def test_what_is_used_all_the_time_is_found_among_what_is_not(hvd, small_tables, size):
    for i in range(300):
        hvd.allreduce(torch.ones(3), name=f"once.{i}")
        assert torch.equal(hvd.allreduce(torch.ones(4), op=hvd.Sum, name="always"), torch.full((4,), float(size)))
    before = _core.counter("requests_sent")
    hvd.allreduce(torch.ones(4), op=hvd.Sum, name="always")
    assert _core.counter("requests_sent") == before


def test_a_scale_that_changes_from_step_to_step_is_planned_once(hvd):
    def step(tokens):
        data = torch.arange(100, dtype=torch.float64)
        assert torch.allclose(hvd.allreduce(data, op=hvd.Average, name="by tokens", prescale_factor=1.0 / tokens),
                              data / tokens)
    step(1)
    plans = _core.counter("plans")
    for tokens in range(2, 100):
        step(tokens)
    assert _core.counter("plans") == plans


def test_shared_memory_of_gradients_that_are_gone_is_given_back(hvd, rank, size):
    """The memory is freed also if one rank drops its last tensor before the others do."""
    def views():
        parameter = torch.nn.Parameter(torch.zeros(5000))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), gradient_views=True)
        (parameter * (rank + 1)).sum().backward()
        optimizer.step()
        assert parameter[0].item() == -(size + 1) / 2
        return parameter.grad

    def blocks():
        with open("/proc/self/maps") as maps:
            return sum("horovod.shared" in line for line in maps)

    gc.collect()
    kept = views()
    before = blocks()
    for _ in range(4):
        views()
        gc.collect()
    assert blocks() <= before + 1
    assert kept[0].item() == (size + 1) / 2
    if rank == 0:
        del kept
    views()
    assert rank == 0 or kept[0].item() == (size + 1) / 2
