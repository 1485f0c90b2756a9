"""Tests of grouped allreduce, allgather and reducescatter."""
import pytest
import torch

import horovod.torch as hvd
from ranks import (MOVED, REDUCED, SIZE, at_least, equal, error_of, everyone, gathered, is_error, mine, near, of,
                   outcome, restarted, share, total)

SHAPES = [(4,), (4, 3), (4, 3, 2), (4, 0), (9,)]


@pytest.mark.parametrize("dtype", REDUCED)
@pytest.mark.parametrize("op", ["Sum", "Average", "Min", "Max"])
def test_grouped_allreduce_reduces_every_tensor(dtype, op):
    """Contract §2.2 grouped_allreduce"""
    found = hvd.grouped_allreduce([mine(shape, dtype) for shape in SHAPES], op=getattr(hvd, op))
    assert isinstance(found, list)
    for tensor, shape in zip(found, SHAPES, strict=True):
        stack = torch.stack([of(rank, shape, torch.float64) for rank in everyone()])
        value = {"Sum": stack.sum(0), "Average": stack.mean(0), "Min": stack.amin(0), "Max": stack.amax(0)}[op]
        near(tensor, (value if dtype.is_floating_point else value.trunc()).to(dtype))


def test_grouped_allreduce_leaves_its_inputs_alone():
    """Contract §2.6 out of place [Horovod tests this]"""
    tensors = [mine(shape) for shape in SHAPES]
    hvd.grouped_allreduce(tensors, op=hvd.Sum)
    for tensor, shape in zip(tensors, SHAPES):
        equal(tensor, mine(shape))


def test_grouped_allreduce_in_place_gives_back_the_same_tensors():
    """Contract §2.2 grouped_allreduce_"""
    tensors, others = [mine(shape) for shape in SHAPES], [mine(shape) for shape in SHAPES]
    found = hvd.grouped_allreduce_(tensors, op=hvd.Sum)
    waited = hvd.synchronize(hvd.grouped_allreduce_async_(others, op=hvd.Sum))
    assert all(one is other for one, other in zip(found, tensors, strict=True))
    assert all(one is other for one, other in zip(waited, others, strict=True))
    for tensor, other, shape in zip(tensors, others, SHAPES):
        equal(tensor, total(shape))
        equal(other, total(shape))


def test_a_group_has_one_handle():
    """Contract §6.5 grouped ops"""
    handle = hvd.grouped_allreduce_async([mine((3,)), mine((5,))], op=hvd.Sum, name="one")
    assert type(handle) is int
    hvd.poll(handle)
    found = hvd.synchronize(handle)
    equal(found[0], total((3,)))
    equal(found[1], total((5,)))


def test_a_group_is_scaled_as_one_tensor_is():
    """Contract §2.6 reductions"""
    found = hvd.grouped_allreduce([mine((3,)), mine((5,))], op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25)
    equal(found[0], total((3,)) / 2)
    equal(found[1], total((5,)) / 2)


def test_a_group_may_mix_dtypes():
    """Contract §2.5 dtypes and layouts, §6.4 tensor fusion"""
    found = hvd.grouped_allreduce([mine((6,), dtype) for dtype in REDUCED], op=hvd.Sum)
    for tensor, dtype in zip(found, REDUCED, strict=True):
        equal(tensor, total((6,), dtype))


def test_groups_take_the_old_argument_average():
    """Contract §2.2 signatures"""
    with pytest.warns(DeprecationWarning):
        found = hvd.grouped_allreduce([mine(), mine()], average=False)
    equal(found[1], total())
    is_error(error_of(hvd.grouped_allreduce, [mine()], average=True, op=hvd.Sum), ValueError)


def test_groups_are_compressed():
    """Contract §2.2 signatures, §2.11 Compression"""
    found = hvd.grouped_allreduce([mine((4,)), mine((4,), torch.int64)], op=hvd.Sum, compression=hvd.Compression.fp16)
    equal(found[0], total((4,)))
    equal(found[1], total((4,), torch.int64))


@pytest.mark.parametrize("dtype", MOVED)
def test_grouped_allgather_gathers_every_tensor(dtype):
    """Contract §2.2 grouped_allgather"""
    rows = [lambda rank: 2, lambda rank: rank, lambda rank: rank + 3]
    tails = [(), (3,), (2, 2)]
    tensors = [mine((count(hvd.rank()), *tail), dtype) for count, tail in zip(rows, tails)]
    found = hvd.grouped_allgather(tensors)
    waited = hvd.synchronize(hvd.grouped_allgather_async(tensors, name="gather"))
    assert isinstance(found, tuple)
    for tensor, other, count, tail in zip(found, waited, rows, tails, strict=True):
        equal(tensor, gathered(count, tail, dtype))
        equal(other, tensor)


@pytest.mark.parametrize("dtype", REDUCED)
@pytest.mark.parametrize("op", ["Sum", "Average"])
def test_grouped_reducescatter_shares_every_tensor_out(dtype, op):
    """Contract §2.2 grouped_reducescatter, §2.8"""
    shapes = [(8,), (SIZE, 2), (5, 3), (1,)]
    found = hvd.grouped_reducescatter([mine(shape, dtype) for shape in shapes], op=getattr(hvd, op))
    waited = hvd.synchronize(hvd.grouped_reducescatter_async([mine(shape, dtype) for shape in shapes],
                                                             op=getattr(hvd, op)))
    assert isinstance(found, list)
    for tensor, other, shape in zip(found, waited, shapes, strict=True):
        value = total(shape, torch.float64) / (SIZE if op == "Average" else 1)
        value = value if dtype.is_floating_point else value.trunc()
        near(tensor, value.to(dtype)[share(shape[0], hvd.rank(), SIZE)])
        equal(other, tensor)


@at_least(2)
@pytest.mark.parametrize("verb", ["allreduce", "allgather", "reducescatter"])
def test_one_wrong_tensor_fails_the_handle_of_its_group(verb):
    """Contract §6.5 the first error fails the handle"""
    function = getattr(hvd, f"grouped_{verb}")
    tensors = [mine((8, 2)), mine((8, 2 + (hvd.rank() == 0))), mine((8, 2))]
    error = error_of(function, tensors, name="wrong")
    found = function([mine((8, 2))] * 3, name="wrong")
    is_error(error, hvd.HorovodInternalError)
    assert len(found) == 3


@at_least(2)
def test_a_group_whose_name_is_in_flight_is_refused_as_a_whole():
    """Contract §6.5 [a quirk of Horovod]: upstream leaves part of it queued"""
    group = [mine((3,)), mine((5,))]
    first = second = None
    if hvd.rank() == 0:
        first = outcome(hvd.grouped_allreduce_async, group, op=hvd.Sum, name="twice")
        second = error_of(hvd.grouped_allreduce_async, group, op=hvd.Sum, name="twice")
    hvd.barrier()
    if hvd.rank() != 0:
        first = hvd.grouped_allreduce_async(group, op=hvd.Sum, name="twice")
    found = hvd.synchronize(first)
    again = hvd.grouped_allreduce(group, op=hvd.Sum, name="twice")
    for one, other, shape in zip(found, again, [(3,), (5,)]):
        equal(one, total(shape))
        equal(other, total(shape))
    if hvd.rank() == 0:
        is_error(second, ValueError)


@at_least(2)
def test_groups_in_different_orders_do_not_block_each_other():
    """Contract §6.2 negotiation, §6.5 grouped ops"""
    order = [0, 1, 2] if hvd.rank() % 2 else [2, 1, 0]
    handles = {i: hvd.grouped_allreduce_async([mine((i + 1,)), mine((i + 4,))], op=hvd.Sum, name=f"g{i}")
               for i in order}
    found = {i: hvd.synchronize(handle) for i, handle in handles.items()}
    for i, (one, other) in found.items():
        equal(one, total((i + 1,)))
        equal(other, total((i + 4,)))


def test_groups_are_right_without_group_fusion():
    """Contract §6.5 HOROVOD_DISABLE_GROUP_FUSION"""
    with restarted(HOROVOD_DISABLE_GROUP_FUSION=1):
        handles = [hvd.grouped_allreduce_async([mine((n,)) for n in (3, 30, 300)], op=hvd.Sum, name=f"g{i}")
                   for i in range(4)]
        single = [hvd.allreduce_async(mine((n,)), op=hvd.Sum, name=f"s{n}") for n in (4, 40)]
        found = [hvd.synchronize(handle) for handle in handles]
        singles = [hvd.synchronize(handle) for handle in single]
    for group in found:
        for tensor, n in zip(group, (3, 30, 300)):
            equal(tensor, total((n,)))
    for tensor, n in zip(singles, (4, 40)):
        equal(tensor, total((n,)))


def test_a_group_takes_its_arguments_by_position():
    """Contract §2.2 signatures"""
    P = hvd.global_process_set
    found = [hvd.grouped_allreduce([mine()], None, "g", hvd.Compression.none, hvd.Sum, 2.0, 0.5, P)[0],
             hvd.grouped_allreduce_([mine()], None, "g", hvd.Sum, 2.0, 0.5, P)[0],
             hvd.synchronize(hvd.grouped_allreduce_async([mine()], None, "g", hvd.Sum, 2.0, 0.5, P))[0],
             hvd.synchronize(hvd.grouped_allreduce_async_([mine()], None, "g", hvd.Sum, 2.0, 0.5, P))[0]]
    gathers = [hvd.grouped_allgather([mine()], "g", P)[0],
               hvd.synchronize(hvd.grouped_allgather_async([mine()], "g", P))[0]]
    shared = hvd.grouped_reducescatter([mine((4,))], "g", hvd.Compression.none, hvd.Sum, P, 2.0, 0.5)[0]
    waited = hvd.synchronize(hvd.grouped_reducescatter_async([mine((4,))], "g", hvd.Sum, P, 2.0, 0.5))[0]
    for tensor in found:
        equal(tensor, total())
    for tensor in gathers:
        equal(tensor, gathered(lambda rank: 17))
    for tensor in (shared, waited):
        equal(tensor, total((4,))[share(4, hvd.rank(), SIZE)])
