"""Tests of reducescatter."""
import pytest
import torch

import horovod.torch as hvd
from ranks import (REDUCED, SIZE, at_least, equal, error_of, is_error, mine, near, restarted, share, total)

SHAPES = [(SIZE,), (4 * SIZE, 3), (7,), (5, 3, 2), (1, 2), (11, 4)]


def shared(shape, dtype=torch.float32, op="Sum", factor=1.0):
    value = total(shape, torch.float64) * factor / (SIZE if op == "Average" else 1)
    return (value if dtype.is_floating_point else value.trunc()).to(dtype)[share(shape[0], hvd.rank(), SIZE)]


@pytest.mark.parametrize("dtype", REDUCED)
@pytest.mark.parametrize("op", ["Sum", "Average"])
@pytest.mark.parametrize("shape", SHAPES)
def test_reducescatter_reduces_and_gives_the_first_ranks_a_row_more(dtype, op, shape):
    """Contract §2.8 reducescatter [Horovod tests this]"""
    near(hvd.reducescatter(mine(shape, dtype), op=getattr(hvd, op)), shared(shape, dtype, op))


def test_without_an_op_reducescatter_averages():
    """Contract §2.2 signatures"""
    found = [hvd.reducescatter(mine((7, 2))), hvd.synchronize(hvd.reducescatter_async(mine((7, 2))))]
    for tensor in found:
        near(tensor, shared((7, 2), op="Average"))


@at_least(2)
def test_ranks_may_get_no_rows():
    """Contract §2.8 reducescatter: 0 rows possible"""
    found = hvd.reducescatter(mine((1, 3)), op=hvd.Sum)
    equal(found, total((1, 3)) if hvd.rank() == 0 else torch.zeros(0, 3))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (4, 0)])
def test_reducescatter_takes_a_tensor_without_elements(shape):
    """Contract §2.5 zero elements"""
    found = hvd.reducescatter(torch.zeros(shape), op=hvd.Sum)
    rows = share(shape[0], hvd.rank(), SIZE)
    assert found.shape == (rows.stop - rows.start, *shape[1:])


def test_reducescatter_leaves_its_input_alone():
    """Contract §2.6 reductions"""
    tensor = mine((9, 2))
    hvd.reducescatter(tensor, op=hvd.Sum, prescale_factor=2.0)
    equal(tensor, mine((9, 2)))


@pytest.mark.parametrize("dtype", REDUCED)
def test_reducescatter_scales_before_and_after(dtype):
    """Contract §2.6, §6.4 prescale"""
    before = hvd.reducescatter(mine((9, 2), dtype), op=hvd.Sum, prescale_factor=2.0)
    after = hvd.reducescatter(mine((9, 2), dtype), op=hvd.Sum, postscale_factor=3.0)
    near(before, shared((9, 2), dtype, factor=2))
    near(after, shared((9, 2), dtype, factor=3))


def test_reducescatter_takes_arguments_by_position():
    """Contract §2.2 signatures"""
    P = hvd.global_process_set
    found = [hvd.reducescatter(mine((9,)), "position", hvd.Compression.none, hvd.Sum, P, 2.0, 0.5),
             hvd.synchronize(hvd.reducescatter_async(mine((9,)), "position", hvd.Sum, P, 2.0, 0.5))]
    for tensor in found:
        near(tensor, shared((9,)))


def test_reducescatter_is_compressed():
    """Contract §2.2 signatures, §2.11 Compression"""
    found = hvd.reducescatter(mine((9, 2)), op=hvd.Sum, compression=hvd.Compression.fp16)
    equal(found, shared((9, 2)))


def test_many_async_reducescatters_of_mixed_shapes_are_right():
    """Contract §2.3 [Horovod tests this], §6.4: rows are shared out per tensor"""
    shapes = SHAPES * 4
    handles = [hvd.reducescatter_async(mine(shape), op=hvd.Sum, name=f"mixed.{i}") for i, shape in enumerate(shapes)]
    found = [hvd.synchronize(handle) for handle in handles]
    for tensor, shape in zip(found, shapes):
        equal(tensor, shared(shape))


def test_reducescatter_of_a_large_tensor_is_right():
    """Contract §2.8 reducescatter"""
    near(hvd.reducescatter(mine((200003, 2)), op=hvd.Sum), shared((200003, 2)))


def test_a_prescaled_tensor_without_room_is_right_or_an_error():
    """Contract §6.2, §6.4: upstream wants room in the fusion buffer"""
    with restarted(HOROVOD_FUSION_THRESHOLD=0):
        found = []
        error = error_of(lambda: found.append(hvd.reducescatter(mine((999,)), op=hvd.Sum, prescale_factor=2.0)))
    if error is None:
        near(found[0], shared((999,), factor=2))
    else:
        is_error(error, hvd.HorovodInternalError)


def test_reducescatter_of_no_dimensions_is_an_error():
    """Contract §2.5 0-dim, §2.10 [Horovod tests this]"""
    error = error_of(hvd.reducescatter, torch.tensor(1.0))
    near(hvd.reducescatter(mine((5,)), op=hvd.Sum), shared((5,)))
    is_error(error, ValueError, RuntimeError)


@pytest.mark.parametrize("op", ["Min", "Max", "Product", "Adasum"])
@pytest.mark.parametrize("verb", ["reducescatter", "grouped_reducescatter"])
def test_reducescatter_only_sums_and_averages(op, verb):
    """Contract §2.8 reducescatter, §2.10 [Horovod tests this]"""
    tensor = mine((5,))
    error = error_of(getattr(hvd, verb), [tensor] if "grouped" in verb else tensor, op=getattr(hvd, op))
    near(hvd.reducescatter(tensor, op=hvd.Sum), shared((5,)))
    is_error(error, hvd.HorovodInternalError, NotImplementedError, ValueError)


@at_least(2)
@pytest.mark.parametrize("disagree", ["shape", "elements", "dtype", "prescale", "postscale", "op"])
def test_ranks_that_disagree_about_a_reducescatter_all_get_an_error(disagree):
    """Contract §2.10 errors, §6.2 negotiation [Horovod tests this]"""
    odd = hvd.rank() == SIZE - 1
    shape = {"shape": (6 + odd,), "elements": (2, 3) if odd else (6,)}.get(disagree, (6,))
    tensor = torch.ones(shape, dtype=torch.int32 if disagree == "dtype" and odd else torch.float32)
    factors = {f"{disagree}_factor": 1.0 + odd} if "scale" in disagree else {}
    op = hvd.Average if disagree == "op" and odd else hvd.Sum
    error = error_of(hvd.reducescatter, tensor, name="wrong", op=op, **factors)
    found = hvd.reducescatter(mine((5,)), name="wrong", op=hvd.Sum)
    near(found, shared((5,)))
    is_error(error, hvd.HorovodInternalError)


def test_allgather_undoes_reducescatter():
    """Contract §2.8 details of ops"""
    whole = hvd.allgather(hvd.reducescatter(mine((13, 2)), op=hvd.Sum))
    near(whole, total((13, 2)))
