"""Tests of handles and of the names of ops."""
import pytest
import torch

import horovod.torch as hvd
from ranks import SIZE, at_least, equal, error_of, everyone, is_error, limit, mine, of, outcome, share, total


@pytest.fixture
def anew():
    hvd.barrier()
    hvd.shutdown()
    hvd.init()


def submit_one():
    handle = hvd.allreduce_async(mine(), op=hvd.Sum)
    hvd.synchronize(handle)
    return handle


def test_handles_are_numbers_from_one_on(anew):
    """Contract §2.3 handles"""
    found = [submit_one() for _ in range(5)]
    assert found == [1, 2, 3, 4, 5] and all(type(handle) is int for handle in found)


@pytest.mark.parametrize("op", ["barrier", "join"])
def test_barrier_and_join_take_a_handle_too(op, anew):
    """Contract §2.3 handles"""
    first = submit_one()
    getattr(hvd, op)()
    assert submit_one() == first + 2


@at_least(2)
def test_an_op_that_is_refused_takes_a_handle_too(anew):
    """Contract §2.3 handles"""
    refused = error_of(hvd.broadcast_async, mine(), SIZE + 5)
    found = submit_one()
    is_error(refused, ValueError)
    assert found == 2


def test_handles_begin_at_one_again_after_shutdown(anew):
    """Contract §2.3 handles, §2.4 names of ops"""
    submit_one()
    submit_one()
    hvd.barrier()
    hvd.shutdown()
    hvd.init()
    assert submit_one() == 1


@at_least(2)
def test_unnamed_ops_match_again_after_a_restart():
    """Contract §2.4: the counter of unnamed ops is reset"""
    if hvd.rank() == 0:  # after this, rank 0 has made one handle more than the others
        error_of(hvd.broadcast_async, mine(), SIZE + 5)
    hvd.barrier()
    hvd.shutdown()
    hvd.init()
    equal(hvd.allreduce(mine(), op=hvd.Sum), total())


def test_waiting_twice_gives_nothing_the_second_time():
    """Contract §2.2 synchronize"""
    handle = hvd.allreduce_async(mine(), op=hvd.Sum)
    first, second = hvd.synchronize(handle), hvd.synchronize(handle)
    equal(first, total())
    assert second is None


@pytest.mark.parametrize("handle", [0, -1, 123456789])
def test_waiting_for_an_unknown_handle_gives_nothing(handle):
    """Contract §2.2 synchronize"""
    assert hvd.synchronize(handle) is None


def test_poll_becomes_true_and_then_waiting_is_immediate():
    """Contract §2.2 poll"""
    handle = hvd.allreduce_async(mine(), op=hvd.Sum)
    while not hvd.poll(handle):
        pass
    assert hvd.poll(handle) is True
    equal(hvd.synchronize(handle), total())


@at_least(2)
def test_poll_is_false_while_another_rank_has_not_submitted():
    """Contract §2.3 handles [Horovod tests this]"""
    handle = hvd.allreduce_async(mine(), op=hvd.Sum, name="polled") if hvd.rank() == 0 else None
    early = [hvd.poll(handle) for _ in range(100)] if hvd.rank() == 0 else []
    hvd.barrier()
    early += [hvd.poll(handle)] if hvd.rank() == 0 else []
    hvd.barrier()
    handle = handle or hvd.allreduce_async(mine(), op=hvd.Sum, name="polled")
    equal(hvd.synchronize(handle), total())
    assert not any(early)


@pytest.mark.parametrize("verb", ["allreduce", "allgather", "broadcast", "alltoall", "reducescatter"])
@limit(90)
@at_least(2)
def test_of_many_async_ops_some_are_not_done_at_once(verb):
    """Contract §2.3 handles [Horovod tests this]"""
    count = 24
    calls = {"allreduce": lambda i: hvd.allreduce_async(mine((40000,)), op=hvd.Sum, name=f"poll.{i}"),
             "allgather": lambda i: hvd.allgather_async(mine((40000,)), name=f"poll.{i}"),
             "broadcast": lambda i: hvd.broadcast_async(mine((40000,)), 0, name=f"poll.{i}"),
             "alltoall": lambda i: hvd.alltoall_async(mine((40000 * SIZE,)), name=f"poll.{i}"),
             "reducescatter": lambda i: hvd.reducescatter_async(mine((40000,)), op=hvd.Sum, name=f"poll.{i}")}
    handles, polled = [], []
    for i in range(count):
        handles.append(calls[verb](i))
        polled.append(hvd.poll(handles[-1]))
    found = [hvd.synchronize(handle) for handle in handles]
    part = slice(hvd.rank() * 40000, (hvd.rank() + 1) * 40000)
    expected = {"allreduce": lambda: total((40000,)),
                "allgather": lambda: torch.cat([of(rank, (40000,)) for rank in everyone()]),
                "broadcast": lambda: of(0, (40000,)),
                "alltoall": lambda: torch.cat([of(rank, (40000 * SIZE,))[part] for rank in everyone()]),
                "reducescatter": lambda: total((40000,))[share(40000, hvd.rank(), SIZE)]}[verb]()
    for tensor in found:
        equal(tensor[0] if verb == "alltoall" else tensor, expected)
    assert not all(polled)


def test_inputs_live_until_the_op_is_done():
    """Contract §2.3 handles"""
    handles = [hvd.allreduce_async(mine((5000,)) + i, op=hvd.Sum, name=f"alive.{i}") for i in range(20)]
    waste = [torch.full((5000,), -1.0) for _ in range(20)]
    found = [hvd.synchronize(handle) for handle in handles]
    del waste
    for i, tensor in enumerate(found):
        equal(tensor, total((5000,)) + i * SIZE)


DUPLICATES = {
    "allreduce": lambda: hvd.allreduce_async(torch.ones(4), name="twice", op=hvd.Sum),
    "allgather": lambda: hvd.allgather_async(torch.ones(4), name="twice"),
    "broadcast": lambda: hvd.broadcast_async(torch.ones(4), 0, name="twice"),
    "alltoall": lambda: hvd.alltoall_async(torch.ones(12), name="twice"),
    "reducescatter": lambda: hvd.reducescatter_async(torch.ones(12), name="twice"),
    "grouped_allgather": lambda: hvd.grouped_allgather_async([torch.ones(4)], name="twice"),
    "grouped_reducescatter": lambda: hvd.grouped_reducescatter_async([torch.ones(12)], name="twice"),
}


@pytest.mark.parametrize("verb", DUPLICATES)
@at_least(2)
def test_a_name_in_flight_is_refused_and_the_first_op_completes(verb):
    """Contract §2.4 names of ops, §2.10 errors [Horovod tests this]"""
    first = error = None
    if hvd.rank() == 0:
        first = outcome(DUPLICATES[verb])
        error = error_of(DUPLICATES[verb])
    hvd.barrier()
    found = hvd.synchronize(first or DUPLICATES[verb]())
    again = hvd.synchronize(DUPLICATES[verb]())
    assert found is not None and again is not None
    if hvd.rank() == 0:
        is_error(error, ValueError)


def test_a_name_can_be_used_again_when_its_op_is_done():
    """Contract §2.4 names of ops"""
    found = [hvd.allreduce(mine() * i, op=hvd.Sum, name="again") for i in range(10)]
    for i, tensor in enumerate(found):
        equal(tensor, total() * i)


def test_one_name_may_be_in_flight_for_different_verbs():
    """Contract §2.4: names begin with the verb"""
    handles = [submit() for submit in DUPLICATES.values()]
    found = [hvd.synchronize(handle) for handle in handles]
    assert all(tensor is not None for tensor in found)


@pytest.mark.parametrize("name", ["with spaces and / slashes", "größer ≥ 日本", "x" * 1000, "%s %d {}",
                                  "a\nb\"c\\"],
                         ids=["spaces", "letters", "long", "formats", "quotes"])
def test_a_name_may_be_any_text(name):
    """Contract §2.9 encoding of names"""
    equal(hvd.allreduce(mine(), op=hvd.Sum, name=name), total())


@at_least(2)
def test_names_tell_ops_apart_whatever_their_order():
    """Contract §2.4 names of ops"""
    names = ["first", "second", "third"]
    order = names if hvd.rank() == 0 else names[::-1]
    handles = {name: hvd.allreduce_async(mine() * (names.index(name) + 1), op=hvd.Sum, name=name) for name in order}
    found = {name: hvd.synchronize(handle) for name, handle in handles.items()}
    for index, name in enumerate(names):
        equal(found[name], total() * (index + 1))
