"""Tests of barrier."""
import torch

import horovod.torch as hvd
from ranks import SIZE, at_least, equal, everyone, mine, sets_of, total, wait_for


def test_barrier_gives_nothing():
    """Contract §2.2 barrier"""
    assert hvd.barrier() is None
    assert hvd.barrier(process_set=hvd.global_process_set) is None
    assert hvd.barrier(hvd.global_process_set) is None


@at_least(2)
def test_a_barrier_waits_for_the_rank_that_comes_late(shared_folder):
    """Contract §2.8 barrier"""
    left_early = []
    if hvd.rank() == 0:
        wait_for(lambda: all((shared_folder / f"enters.{rank}").exists() for rank in range(1, SIZE)))
        left_early = list(shared_folder.glob("left.*"))
    else:
        (shared_folder / f"enters.{hvd.rank()}").touch()
    hvd.barrier()
    (shared_folder / f"left.{hvd.rank()}").touch()
    assert left_early == []


def test_what_happened_before_a_barrier_is_seen_after_it(shared_folder):
    """Contract §2.8 barrier"""
    missing = []
    for turn in range(20):
        (shared_folder / f"{turn}.{hvd.rank()}").touch()
        hvd.barrier()
        missing += [rank for rank in everyone() if not (shared_folder / f"{turn}.{rank}").exists()]
    assert missing == []


def test_a_barrier_does_not_wait_for_collectives_in_flight():
    """Contract §2.8 barrier [Horovod tests this: barrier with multiple collectives]"""
    first = [hvd.allreduce_async(mine((1000,)), op=hvd.Sum, name=f"before.{i}") for i in range(10)]
    hvd.barrier()
    second = [hvd.allreduce_async(mine((1000,)), op=hvd.Sum, name=f"after.{i}") for i in range(10)]
    hvd.barrier()
    for handle in [*second, *first]:
        equal(hvd.synchronize(handle), total((1000,)))


@at_least(2)
def test_a_barrier_passes_an_op_that_some_rank_never_submitted():
    """Contract §6.2 negotiation"""
    handle = hvd.allreduce_async(mine(), op=hvd.Sum, name="late") if hvd.rank() == 0 else None
    hvd.barrier()
    handle = handle or hvd.allreduce_async(mine(), op=hvd.Sum, name="late")
    equal(hvd.synchronize(handle), total())


def test_handles_that_nobody_waited_for_are_harmless_at_shutdown():
    """Contract §2.3 handles"""
    for i in range(5):
        hvd.allreduce_async(torch.ones(1000), name=f"forgotten.{i}")
    hvd.barrier()
    hvd.shutdown()
    hvd.init()
    equal(hvd.allreduce(mine(), op=hvd.Sum), total())


@at_least(3)
def test_a_barrier_of_a_set_waits_for_its_members(shared_folder):
    """Contract §2.8 barrier"""
    left_early = []
    with sets_of([0, SIZE - 1]) as pair:
        if hvd.rank() == 0:
            wait_for(lambda: (shared_folder / "enters").exists())
            left_early = list(shared_folder.glob("left"))
        elif hvd.rank() == SIZE - 1:
            (shared_folder / "enters").touch()
        if pair.included():
            hvd.barrier(process_set=pair)
            if hvd.rank():
                (shared_folder / "left").touch()
    assert left_early == []


@at_least(2)
def test_a_rank_may_be_in_two_barriers_of_different_sets(shared_folder):
    """Contract §2.4: a name is in flight once within a set"""
    import threading
    with sets_of([0]) as first:
        thread = threading.Thread(target=hvd.barrier)
        thread.start()
        if first.included():
            hvd.barrier(process_set=first)
        thread.join()
    equal(hvd.allreduce(mine(), op=hvd.Sum), total())
