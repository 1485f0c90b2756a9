"""Tests of broadcast."""
import pytest
import torch

import horovod.torch as hvd
from ranks import MOVED, SIZE, at_least, equal, error_of, is_error, mine, of

SHAPES = [(17,), (5, 3), (2, 3, 4)]
ROOTS = range(max(SIZE, 1))


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("root", ROOTS)
def test_broadcast_gives_everyone_the_tensor_of_the_root(dtype, shape, root):
    """Contract §2.8 broadcast, §2.5"""
    equal(hvd.broadcast(mine(shape, dtype), root), of(root, shape, dtype))


@pytest.mark.parametrize("root", ROOTS)
def test_broadcast_leaves_its_input_alone(root):
    """Contract §2.8 broadcast"""
    tensor = mine()
    found = hvd.broadcast(tensor, root)
    equal(tensor, mine())
    assert found is not tensor
    if hvd.rank() != root:
        assert found.data_ptr() != tensor.data_ptr()


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("root", ROOTS)
def test_broadcast_in_place_writes_into_its_tensor(dtype, root):
    """Contract §2.2 broadcast_"""
    tensor, other = mine(dtype=dtype), mine(dtype=dtype)
    found = hvd.broadcast_(tensor, root)
    waited = hvd.synchronize(hvd.broadcast_async_(other, root))
    assert found is tensor and waited is other
    equal(tensor, of(root, dtype=dtype))
    equal(other, of(root, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_broadcast_takes_a_tensor_of_no_dimensions(dtype):
    """Contract §2.5 0-dim"""
    tensor = torch.tensor(hvd.rank() + 5, dtype=dtype)
    found = hvd.broadcast(tensor, SIZE - 1)
    hvd.broadcast_(tensor, SIZE - 1)
    equal(found, torch.tensor(SIZE + 4, dtype=dtype))
    equal(tensor, found)


@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0)])
def test_broadcast_takes_a_tensor_without_elements(shape):
    """Contract §2.5 zero elements"""
    assert hvd.broadcast(torch.zeros(shape), 0).shape == shape
    assert hvd.broadcast_(torch.zeros(shape), 0).shape == shape


def test_broadcast_takes_arguments_by_position():
    """Contract §2.2 signatures"""
    P = hvd.global_process_set
    found = [hvd.broadcast(mine(), 0, "position", P), hvd.synchronize(hvd.broadcast_async(mine(), 0, "position", P)),
             hvd.broadcast_(mine(), 0, "position", P), hvd.synchronize(hvd.broadcast_async_(mine(), 0, "position", P))]
    for tensor in found:
        equal(tensor, of(0))


def test_many_async_broadcasts_from_different_roots_are_right():
    """Contract §2.3 handles [Horovod tests this]"""
    handles = [hvd.broadcast_async(mine((i + 1,)) + i, i % SIZE, name=f"mixed.{i}") for i in range(20)]
    found = [hvd.synchronize(handle) for handle in handles]
    for i, tensor in enumerate(found):
        equal(tensor, of(i % SIZE, (i + 1,)) + i)


@pytest.mark.parametrize("root", [-1, max(SIZE, 1), 1000])
@pytest.mark.parametrize("verb", ["broadcast", "broadcast_", "broadcast_async", "broadcast_async_"])
def test_a_root_that_does_not_exist_is_a_value_error(root, verb):
    """Contract §2.8 broadcast, §2.10"""
    error = error_of(getattr(hvd, verb), mine(), root)
    equal(hvd.broadcast(mine(), 0), of(0))
    is_error(error, ValueError)


@at_least(2)
@pytest.mark.parametrize("disagree", ["root", "shape", "dtype", "elements"])
def test_ranks_that_disagree_about_a_broadcast_all_get_an_error(disagree):
    """Contract §2.10 errors, §6.2 negotiation [Horovod tests this]"""
    odd = hvd.rank() == SIZE - 1
    shape = {"shape": (6 + odd,), "elements": (2, 3) if odd else (6,)}.get(disagree, (6,))
    dtype = torch.int32 if disagree == "dtype" and odd else torch.float32
    error = error_of(hvd.broadcast, torch.ones(shape, dtype=dtype), int(disagree == "root" and odd), name="wrong")
    found = hvd.broadcast(mine(), 0, name="wrong")
    equal(found, of(0))
    is_error(error, hvd.HorovodInternalError)
