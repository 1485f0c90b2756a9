"""Tests of join, for ranks that have no more batches."""
import pytest
import torch

import horovod.torch as hvd
from ranks import (REDUCED, SIZE, at_least, equal, error_of, everyone, gathered, is_error, mine, near, of, outcome,
                   restarted, total)

CACHES = pytest.mark.parametrize("capacity", [1024, 0], ids=["with cache", "without cache"])


def test_join_gives_a_rank():
    """Contract §2.8 join [Horovod tests this]"""
    found = hvd.join()
    assert type(found) is int and 0 <= found < SIZE
    equal(hvd.allreduce(mine(), op=hvd.Sum), total())


@pytest.mark.parametrize("last", range(max(SIZE, 1)))
@CACHES
def test_join_gives_the_rank_that_joined_last_on_all_ranks(last, capacity):
    """Contract §2.8 join [Horovod tests this]"""
    with restarted(HOROVOD_CACHE_CAPACITY=capacity):
        if hvd.rank() == last:  # only this rank calls it, so that it completes after all others have joined
            outcome(hvd.allreduce, mine(), name="alone", op=hvd.Sum)
        found = hvd.join()
        others = hvd.allgather(torch.tensor([found]))
    assert others.tolist() == [last] * SIZE


@CACHES
@at_least(2)
def test_ranks_with_fewer_batches_add_zeros(capacity):
    """Contract §6.6, §2.6: Average is by all ranks"""
    with restarted(HOROVOD_CACHE_CAPACITY=capacity):
        summed, averaged = [], []
        for batch in range(hvd.rank() + 2):
            summed.append(outcome(hvd.allreduce, mine(), op=hvd.Sum, name="batch.sum"))
            averaged.append(outcome(hvd.allreduce, mine(), name="batch.average"))
        found = hvd.join()
    assert found == SIZE - 1
    for batch, (tensor, average) in enumerate(zip(summed, averaged)):
        there = [rank for rank in everyone() if batch < rank + 2]
        near(tensor, total(ranks=there))
        near(average, total(ranks=there) * torch.tensor(1 / SIZE))  # §2.6: the factor is cast to float


@pytest.mark.parametrize("dtype", REDUCED)
@pytest.mark.parametrize("op", ["Sum", "Min", "Max", "Product"])
@at_least(2)
def test_a_joined_rank_adds_zeros_to_every_reduction(dtype, op):
    """Contract §6.6 join"""
    found = outcome(hvd.allreduce, -mine((5, 2), dtype), op=getattr(hvd, op), name="joined") if hvd.rank() else None
    last = hvd.join()
    stack = torch.stack([-of(rank, (5, 2), dtype) * (rank != 0) for rank in everyone()])
    expected = {"Sum": stack.sum(0).to(dtype), "Min": stack.amin(0), "Max": stack.amax(0),
                "Product": torch.zeros(5, 2, dtype=dtype)}[op]
    assert last != 0
    if found is not None:
        near(found, expected.to(dtype))


@at_least(2)
def test_a_joined_rank_takes_part_in_what_it_never_submitted():
    """Contract §6.6: the shape comes from the others"""
    lengths = (1, 50, 5000) if hvd.rank() else ()
    found = [outcome(hvd.allreduce, mine((n,)), op=hvd.Sum, name=f"never.{n}") for n in lengths]
    hvd.join()
    for tensor, n in zip(found, lengths):
        near(tensor, total((n,), ranks=range(1, SIZE)))


@at_least(2)
def test_a_joined_rank_takes_part_in_groups():
    """Contract §6.6 join, §6.5 grouped ops"""
    found = outcome(hvd.grouped_allreduce, [mine((3,)), mine((4, 2))], op=hvd.Sum, name="group") if hvd.rank() else None
    hvd.join()
    if found:
        near(found[0], total((3,), ranks=range(1, SIZE)))
        near(found[1], total((4, 2), ranks=range(1, SIZE)))


@at_least(2)
def test_a_joined_rank_takes_part_in_many_fused_ops():
    """Contract §6.6 join, §6.4 tensor fusion"""
    lengths = range(1, 30 if hvd.rank() else 1)
    handles = [outcome(hvd.allreduce_async, mine((n,)), op=hvd.Sum, name=f"fused.{n}") for n in lengths]
    found = [outcome(hvd.synchronize, handle) for handle in handles]
    hvd.join()
    for n, tensor in enumerate(found, 1):
        near(tensor, total((n,), ranks=range(1, SIZE)))


VERBS = {"allgather": lambda: hvd.allgather(torch.ones(4), name="late"),
         "broadcast": lambda: hvd.broadcast(torch.ones(4), SIZE - 1, name="late"),
         "alltoall": lambda: hvd.alltoall(torch.ones(12), name="late"),
         "reducescatter": lambda: hvd.reducescatter(torch.ones(12), name="late")}


@CACHES
@pytest.mark.parametrize("verb", VERBS)
@at_least(2)
def test_other_verbs_are_errors_while_a_rank_has_joined(verb, capacity):
    """Contract §2.10 errors, §6.6 join [Horovod tests this]"""
    with restarted(HOROVOD_CACHE_CAPACITY=capacity):
        error = error_of(VERBS[verb]) if hvd.rank() else None
        hvd.join()
        again = VERBS[verb]()
    assert again is not None
    if hvd.rank():
        is_error(error, hvd.HorovodInternalError)


@pytest.mark.parametrize("verb", ["allgather", "alltoall"])
@at_least(2)
def test_a_cached_verb_is_an_error_too_while_a_rank_has_joined(verb):
    """Contract §6.3 response cache, §6.6 join [Horovod tests this]"""
    for _ in range(3):
        VERBS[verb]()
    error = error_of(VERBS[verb]) if hvd.rank() else None
    hvd.join()
    if hvd.rank():
        is_error(error, hvd.HorovodInternalError)


@at_least(2)
def test_a_barrier_is_for_those_who_have_not_joined():
    """Contract §6.2 6."""
    if hvd.rank():
        waited = outcome(hvd.barrier)
    found = hvd.join()
    assert hvd.rank() == 0 or waited is None
    assert 0 <= found < SIZE


@at_least(2)
def test_an_error_while_a_rank_has_joined_leaves_the_rest_running():
    """Contract §2.10 errors, §6.6 join"""
    if hvd.rank():
        error = error_of(hvd.allgather, torch.ones(2), name="wrong")
        found = outcome(hvd.allreduce, mine(), op=hvd.Sum, name="right")
    hvd.join()
    equal(hvd.allgather(mine((2,))), gathered(lambda rank: 2))
    if hvd.rank():
        is_error(error, hvd.HorovodInternalError)
        near(found, total(ranks=range(1, SIZE)))


@at_least(2)
def test_ranks_may_join_again_and_again():
    """Contract §6.6: the joined state clears"""
    found = []
    for epoch in range(4):
        first = epoch % SIZE  # this rank has no batch in this epoch
        if hvd.rank() != first:
            found.append((first, outcome(hvd.allreduce, mine(), op=hvd.Sum, name="epoch")))
        hvd.join()
        found.append((None, hvd.allreduce(mine(), op=hvd.Sum, name="together")))
    for first, tensor in found:
        near(tensor, total(ranks=[rank for rank in everyone() if rank != first]))


@at_least(2)
def test_ops_of_a_set_go_on_while_its_members_have_not_joined():
    """Contract §6.6 join, §5 process sets"""
    added = hvd.add_process_set(range(1, SIZE))
    found = outcome(hvd.allreduce, mine(), op=hvd.Sum, name="set", process_set=added) if hvd.rank() else None
    hvd.join()
    hvd.remove_process_set(added)
    if found is not None:
        near(found, total(ranks=range(1, SIZE)))


@at_least(2)
def test_gradients_go_on_while_a_rank_has_joined():
    """Contract §6.6 join, §2.12 DistributedOptimizer"""
    torch.manual_seed(3)
    model = torch.nn.Linear(4, 2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                         named_parameters=model.named_parameters())
    for _ in range(hvd.rank() + 1):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
    assert hvd.join() == SIZE - 1
    # The last rank made the most steps, and the other ranks take over its parameters.
    hvd.broadcast_parameters(model.state_dict(), root_rank=SIZE - 1)
    rows = hvd.allgather(model.weight.detach().reshape(1, -1))
    for row in rows:
        equal(row, rows[0])


def test_join_takes_a_device():
    """Contract §2.2 join(device=-1)"""
    assert hvd.join(-1) < SIZE and hvd.join(device=-1) < SIZE
