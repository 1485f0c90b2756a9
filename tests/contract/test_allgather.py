"""Tests of allgather."""
import pytest
import torch

import horovod.torch as hvd
from ranks import MOVED, SIZE, at_least, equal, error_of, gathered, is_error, mine

TAILS = [(), (3,), (3, 2)]


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("tail", TAILS)
def test_allgather_concatenates_in_rank_order(dtype, tail):
    """Contract §2.8 allgather, §2.5"""
    equal(hvd.allgather(mine((4, *tail), dtype)), gathered(lambda rank: 4, tail, dtype))


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("tail", TAILS)
def test_first_dimensions_may_differ(dtype, tail):
    """Contract §2.8 allgather"""
    equal(hvd.allgather(mine((hvd.rank() * 2 + 1, *tail), dtype)), gathered(lambda rank: rank * 2 + 1, tail, dtype))


@pytest.mark.parametrize("nothing", ["one rank", "all but one", "all"])
def test_ranks_may_have_no_rows(nothing):
    """Contract §2.5 zero elements, §2.8 allgather"""
    rows = {"one rank": lambda rank: 3 * (rank != 0), "all but one": lambda rank: 3 * (rank == SIZE - 1),
            "all": lambda rank: 0}[nothing]
    equal(hvd.allgather(mine((rows(hvd.rank()), 5))), gathered(rows, (5,)))


def test_rows_may_have_no_elements():
    """Contract §2.5 zero elements"""
    found = hvd.allgather(torch.zeros(hvd.rank() + 1, 0))
    assert found.shape == (sum(range(SIZE + 1)), 0)


def test_allgather_leaves_its_input_alone():
    """Contract §2.6 reductions"""
    tensor = mine()
    found = hvd.allgather(tensor)
    equal(tensor, mine())
    assert found.data_ptr() != tensor.data_ptr()


def test_allgather_takes_arguments_by_position():
    """Contract §2.2 signatures"""
    found = [hvd.allgather(mine(), "position", hvd.global_process_set),
             hvd.synchronize(hvd.allgather_async(mine(), "position", hvd.global_process_set))]
    for tensor in found:
        equal(tensor, gathered(lambda rank: 17))


def test_many_async_allgathers_of_mixed_shapes_are_right():
    """Contract §2.3 handles [Horovod tests this]"""
    tails = TAILS * 5
    handles = [hvd.allgather_async(mine((hvd.rank() + i, *tail)), name=f"mixed.{i}") for i, tail in enumerate(tails)]
    found = [hvd.synchronize(handle) for handle in handles]
    for i, (tensor, tail) in enumerate(zip(found, tails)):
        equal(tensor, gathered(lambda rank: rank + i, tail))


def test_allgather_of_a_large_tensor_is_right():
    """Contract §2.8 allgather"""
    equal(hvd.allgather(mine((100003 + hvd.rank(),))), gathered(lambda rank: 100003 + rank))


def test_allgather_of_no_dimensions_is_an_error():
    """Contract §2.5 0-dim"""
    error = error_of(hvd.allgather, torch.tensor(1.0))
    equal(hvd.allgather(mine()), gathered(lambda rank: 17))
    is_error(error, hvd.HorovodInternalError, ValueError)


@at_least(2)
@pytest.mark.parametrize("disagree", ["dimensions", "other dimension", "dtype"])
def test_what_cannot_be_concatenated_is_an_error_on_every_rank(disagree):
    """Contract §2.10 errors, §6.2 negotiation [Horovod tests this]"""
    odd = hvd.rank() == SIZE - 1
    tensor = {"dimensions": lambda: torch.ones(4, 3) if odd else torch.ones(4),
              "other dimension": lambda: torch.ones(4, 3 + odd),
              "dtype": lambda: torch.ones(4, dtype=torch.int32 if odd else torch.float32)}[disagree]()
    error = error_of(hvd.allgather, tensor, name="wrong")
    found = hvd.allgather(mine(), name="wrong")
    equal(found, gathered(lambda rank: 17))
    is_error(error, hvd.HorovodInternalError)


def test_allgather_object_lists_objects_by_rank():
    """Contract §2.13 allgather_object"""
    made = {"rank": hvd.rank(), "text": "x" * (10 ** hvd.rank()), "list": list(range(hvd.rank()))}
    found = hvd.allgather_object(made, name="objects")
    other = hvd.allgather_object(None)
    assert found == [{"rank": rank, "text": "x" * (10 ** rank), "list": list(range(rank))} for rank in range(SIZE)]
    assert other == [None] * SIZE
