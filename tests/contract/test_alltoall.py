"""Tests of alltoall: equal parts, uneven splits, received splits, refused arguments."""
import numpy
import pytest
import torch

import horovod.torch as hvd
from ranks import MOVED, SIZE, at_least, equal, error_of, everyone, is_error, mine, of

TAILS = [(), (3,), (3, 2)]
UNEVEN = [lambda sender, receiver: sender + receiver + 1, lambda sender, receiver: receiver,
          lambda sender, receiver: (sender + 1) * (sender == receiver), lambda sender, receiver: 0,
          lambda sender, receiver: 5 * (receiver == 0)]
NAMES = ["both", "receiver", "to itself", "nothing", "all to rank 0"]


def rows_to(sender, splits, receiver, tail=(), dtype=torch.float32):
    """The rows that rank `sender` sends to rank `receiver`."""
    counts = [splits(sender, rank) for rank in everyone()]
    first = sum(counts[:receiver])
    return of(sender, (sum(counts), *tail), dtype)[first:first + counts[receiver]]


def counts_of(splits):
    return [splits(hvd.rank(), rank) for rank in everyone()]


def received_from_all(splits, tail=(), dtype=torch.float32):
    return torch.cat([rows_to(sender, splits, hvd.rank(), tail, dtype) for sender in everyone()])


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("tail", TAILS)
def test_without_splits_every_rank_gets_an_equal_part(dtype, tail):
    """Contract §2.8 alltoall, §2.5"""
    found = hvd.alltoall(mine((3 * SIZE, *tail), dtype))
    assert isinstance(found, torch.Tensor)
    equal(found, received_from_all(lambda sender, receiver: 3, tail, dtype))


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("splits", UNEVEN, ids=NAMES)
def test_splits_say_how_many_rows_each_rank_gets(dtype, tail, splits):
    """Contract §2.8 alltoall, §2.5 zero elements"""
    counts = counts_of(splits)
    found, received = hvd.alltoall(mine((sum(counts), *tail), dtype), torch.tensor(counts, dtype=torch.int32))
    equal(found, received_from_all(splits, tail, dtype))
    equal(received, torch.tensor([splits(rank, hvd.rank()) for rank in everyone()], dtype=torch.int32))


@pytest.mark.parametrize("kind", [list, tuple, numpy.array, lambda counts: numpy.array(counts, dtype=numpy.int64),
                                  lambda counts: torch.tensor(counts, dtype=torch.int32)],
                         ids=["list", "tuple", "array", "int64 array", "tensor"])
def test_splits_may_be_a_list_an_array_or_a_tensor(kind):
    """Contract §2.8 alltoall [Horovod tests this]"""
    counts = counts_of(UNEVEN[0])
    splits = kind(counts)
    found, received = hvd.alltoall(mine((sum(counts),)), splits)
    equal(found, received_from_all(UNEVEN[0]))
    where = splits.device.type if isinstance(splits, torch.Tensor) else "cpu"
    assert received.dtype == torch.int32 and received.device.type == where and received.shape == (SIZE,)


def test_waiting_for_an_async_alltoall_always_gives_the_pair():
    """Contract §2.8 alltoall"""
    without = hvd.synchronize(hvd.alltoall_async(mine((2 * SIZE,))))
    counts = counts_of(UNEVEN[0])
    found, received = hvd.synchronize(hvd.alltoall_async(mine((sum(counts),)), counts))
    equal(without[0], received_from_all(lambda sender, receiver: 2))
    assert without[1].dtype == torch.int32 and without[1].tolist() == [2] * SIZE
    equal(found, received_from_all(UNEVEN[0]))
    assert received.tolist() == [rank + hvd.rank() + 1 for rank in everyone()]


def test_rows_beyond_the_splits_are_dropped():
    """Contract §2.8 alltoall"""
    found, received = hvd.alltoall(mine((SIZE + 4, 2)), torch.ones(SIZE, dtype=torch.int32))
    equal(found, torch.stack([of(rank, (SIZE + 4, 2))[hvd.rank()] for rank in everyone()]))
    assert received.tolist() == [1] * SIZE


def test_rows_may_have_no_elements():
    """Contract §2.5 zero elements"""
    found, received = hvd.alltoall(torch.zeros(2 * SIZE, 0), torch.full((SIZE,), 2, dtype=torch.int32))
    assert found.shape == (2 * SIZE, 0) and received.tolist() == [2] * SIZE


def test_nobody_may_have_rows():
    """Contract §2.5 zero elements"""
    assert hvd.alltoall(torch.zeros(0, 4)).shape == (0, 4)


def test_alltoall_leaves_its_input_alone():
    """Contract §2.6 reductions"""
    tensor, splits = mine((SIZE * 2,)), torch.full((SIZE,), 2, dtype=torch.int32)
    hvd.alltoall(tensor, splits)
    equal(tensor, mine((SIZE * 2,)))
    equal(splits, torch.full((SIZE,), 2, dtype=torch.int32))


def test_alltoall_takes_arguments_by_position():
    """Contract §2.2 signatures"""
    splits = torch.ones(SIZE, dtype=torch.int32)
    found = [hvd.alltoall(mine((SIZE,)), splits, "position", hvd.global_process_set)[0],
             hvd.synchronize(hvd.alltoall_async(mine((SIZE,)), splits, "position", hvd.global_process_set))[0]]
    for tensor in found:
        equal(tensor, received_from_all(lambda sender, receiver: 1))


def test_many_async_alltoalls_are_right():
    """Contract §2.3 handles [Horovod tests this]"""
    handles = [hvd.alltoall_async(mine((SIZE * (i + 1), 2)), name=f"many.{i}") for i in range(20)]
    found = [hvd.synchronize(handle) for handle in handles]
    for i, (tensor, _) in enumerate(found):
        equal(tensor, received_from_all(lambda sender, receiver: i + 1, (2,)))


def test_splits_of_one_name_may_change_from_call_to_call():
    """Contract §6.3: alltoall is cached"""
    for turn in range(6):
        counts = [(turn + hvd.rank() * rank) % 4 for rank in everyone()]
        found, _ = hvd.alltoall(mine((sum(counts),)), counts, name="changing")
        equal(found, received_from_all(lambda sender, receiver: (turn + sender * receiver) % 4))


def test_alltoall_of_a_large_tensor_is_right():
    """Contract §2.8 alltoall"""
    splits = lambda sender, receiver: 50000 + 7 * sender + receiver  # noqa: E731
    counts = counts_of(splits)
    found, _ = hvd.alltoall(mine((sum(counts),)), counts)
    equal(found, received_from_all(splits))


def wrong_splits():
    return {"two dimensions": torch.ones(SIZE, 1, dtype=torch.int32), "int64": torch.ones(SIZE, dtype=torch.int64),
            "float": torch.ones(SIZE), "too many rows": torch.full((SIZE,), 100, dtype=torch.int32),
            "too long": torch.ones(SIZE + 1, dtype=torch.int32), "too short": torch.ones(SIZE - 1, dtype=torch.int32),
            "negative": torch.tensor([-1] + [1] * (SIZE - 1), dtype=torch.int32)}


@pytest.mark.parametrize("wrong", ["two dimensions", "int64", "float", "too many rows", "too long", "too short",
                                   "negative"])
def test_wrong_splits_are_a_value_error(wrong):
    """Contract §2.10 alltoall [Horovod tests this]"""
    error = error_of(hvd.alltoall, mine((SIZE * 4,)), wrong_splits()[wrong], name="wrong")
    found = hvd.alltoall(mine((SIZE,)), name="wrong")
    equal(found, received_from_all(lambda sender, receiver: 1))
    is_error(error, ValueError)


@at_least(2)
def test_rows_that_do_not_divide_by_the_ranks_are_a_value_error():
    """Contract §2.10 alltoall [Horovod tests this]"""
    is_error(error_of(hvd.alltoall, mine((SIZE + 1,))), ValueError)


def test_alltoall_of_no_dimensions_is_an_error():
    """Contract §2.5 0-dim"""
    error = error_of(hvd.alltoall, torch.tensor(1.0))
    equal(hvd.alltoall(mine((SIZE,))), received_from_all(lambda sender, receiver: 1))
    is_error(error, hvd.HorovodInternalError, ValueError)


@at_least(2)
@pytest.mark.parametrize("disagree", ["dimensions", "other dimension", "dtype"])
def test_ranks_that_disagree_about_an_alltoall_all_get_an_error(disagree):
    """Contract §2.10 errors, §6.2 negotiation [Horovod tests this]"""
    odd = hvd.rank() == SIZE - 1
    tensor = {"dimensions": lambda: torch.ones(SIZE, 3) if odd else torch.ones(SIZE),
              "other dimension": lambda: torch.ones(SIZE, 3 + odd),
              "dtype": lambda: torch.ones(SIZE, dtype=torch.int32 if odd else torch.float32)}[disagree]()
    error = error_of(hvd.alltoall, tensor, name="wrong")
    found = hvd.alltoall(mine((SIZE,)), name="wrong")
    equal(found, received_from_all(lambda sender, receiver: 1))
    is_error(error, hvd.HorovodInternalError)
