"""Tests of the factors before and after a reduction: their precision, and when products are rounded."""
import numpy
import pytest
import torch

import horovod.torch as hvd
from ranks import REDUCED, SIZE, at_least, equal, error_of, everyone, is_error, mine, near, of

FACTOR = 0.7391628125  # a number with many binary digits, which shows a wrong rounding
INTEGERS, FLOATS = [torch.int32, torch.int64], [torch.float16, torch.float32, torch.float64]
COMPUTED_IN = {torch.float16: numpy.float32, torch.float32: numpy.float32, torch.float64: numpy.float64}


def scaled(values, factor):
    """The product by the contract: integers are scaled in double and truncated, half precision is scaled in float32,
    other types in their own precision."""
    if not values.dtype.is_floating_point:
        return torch.from_numpy(numpy.trunc(values.cpu().numpy().astype(numpy.float64) * factor)).to(values)
    kind = COMPUTED_IN[values.dtype]
    return torch.from_numpy(values.cpu().numpy().astype(kind) * kind(factor)).to(values)


def common(dtype, count=500):
    """A tensor that is the same on all ranks, with values of both signs."""
    return ((torch.arange(count) * 37 % 201) - 100).to(dtype)


@pytest.mark.parametrize("dtype", REDUCED)
@pytest.mark.parametrize("verb", ["allreduce", "allreduce_", "grouped_allreduce"])
def test_a_factor_before_is_applied_to_every_rank(dtype, verb):
    """Contract §2.6 prescale [Horovod tests this]"""
    tensor = common(dtype)
    argument = [tensor.clone()] if "grouped" in verb else tensor.clone()
    found = getattr(hvd, verb)(argument, op=hvd.Sum, prescale_factor=FACTOR)
    near(found[0] if "grouped" in verb else found, scaled(tensor, FACTOR) * SIZE)


@pytest.mark.parametrize("dtype", REDUCED)
@pytest.mark.parametrize("verb", ["allreduce", "allreduce_", "grouped_allreduce"])
def test_a_factor_after_is_applied_to_the_sum(dtype, verb):
    """Contract §2.6 postscale [Horovod tests this]"""
    tensor = common(dtype)
    argument = [tensor.clone()] if "grouped" in verb else tensor.clone()
    found = getattr(hvd, verb)(argument, op=hvd.Sum, postscale_factor=FACTOR)
    near(found[0] if "grouped" in verb else found, scaled(tensor * SIZE, FACTOR))


@pytest.mark.parametrize("dtype", REDUCED)
def test_both_factors_are_applied(dtype):
    """Contract §2.6; the sum of half precisions stays in float32 until it is scaled, so it is rounded once"""
    found = hvd.allreduce(common(dtype), op=hvd.Sum, prescale_factor=FACTOR, postscale_factor=2.5)
    summed = scaled(common(dtype), FACTOR).to(torch.float32 if dtype == torch.float16 else dtype) * SIZE
    near(found, scaled(summed, 2.5).to(dtype))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_an_average_of_integers_is_truncated_toward_zero(dtype):
    """Contract §2.6 reductions [Horovod tests this]"""
    values = torch.tensor([hvd.rank() + 1, -hvd.rank() - 1, hvd.rank() * 3, -7, 7], dtype=dtype)
    found = hvd.allreduce(values)
    sums = sum(numpy.array([rank + 1, -rank - 1, rank * 3, -7, 7]) for rank in everyone())
    assert found.tolist() == [int(value / SIZE) for value in sums.tolist()] and found.dtype == dtype


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_truncated_per_rank_before_they_are_added(dtype):
    """Contract §2.6 reductions [Horovod tests this]"""
    values = torch.tensor([1, -1, 3, -3], dtype=dtype)
    before = hvd.allreduce(values, op=hvd.Sum, prescale_factor=0.5)
    after = hvd.allreduce(values, op=hvd.Sum, postscale_factor=0.5)
    assert before.tolist() == [0, 0, SIZE, -SIZE]
    assert after.tolist() == [int(value * SIZE / 2) for value in (1, -1, 3, -3)]


def test_an_integer_beyond_the_doubles_is_not_touched_by_factor_one():
    """Contract §2.6: a factor of exactly 1.0 means no scaling"""
    odd = 2 ** 53 + 1
    found = hvd.allreduce(torch.tensor([odd]), op=hvd.Max, prescale_factor=1.0, postscale_factor=1.0)
    assert found.item() == odd


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["Min", "Max", "Product"])
def test_other_reductions_are_scaled_too(dtype, op):
    """Contract §2.6 reductions"""
    found = hvd.allreduce(mine((6,), dtype), op=getattr(hvd, op), prescale_factor=2.0, postscale_factor=0.5)
    rows = torch.stack([of(rank, (6,), dtype) * 2 for rank in everyone()])
    expected = {"Min": rows.amin(0), "Max": rows.amax(0), "Product": rows.prod(0)}[op] * 0.5
    near(found, expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_an_average_is_scaled_too(dtype):
    """Contract §2.6: 1/n is folded into the factor after"""
    found = hvd.allreduce(common(dtype), prescale_factor=2.0, postscale_factor=4.0)
    torch.testing.assert_close(found, common(dtype) * 8, rtol=1e-3 if dtype == torch.float16 else 1e-6, atol=1e-8)


def test_half_precision_is_rounded_to_nearest_even():
    """Contract §2.6 reductions, §6.15 data layout"""
    # The products 2049 and 3075 are half way between two numbers of half precision.
    values = torch.tensor([683.0, 1025.5 - 0.5], dtype=torch.float16)
    found = hvd.allreduce(values, op=hvd.Max, prescale_factor=3.0)
    expected = (values.float() * 3.0).to(torch.float16)
    equal(found, expected)
    assert found[0].item() == 2048


def test_a_factor_is_a_float_for_single_precision():
    """Contract §2.6: float32 is multiplied by the factor cast to float"""
    values = torch.rand(2000, generator=torch.Generator().manual_seed(5))
    found = hvd.allreduce(values, op=hvd.Max, prescale_factor=FACTOR)
    equal(found, torch.from_numpy(values.cpu().numpy() * numpy.float32(FACTOR)).to(values))


def test_scaling_leaves_the_input_alone():
    """Contract §2.6 reductions"""
    values = common(torch.float32)
    hvd.allreduce(values, op=hvd.Sum, prescale_factor=FACTOR, postscale_factor=FACTOR)
    equal(values, common(torch.float32))


@at_least(2)
@pytest.mark.parametrize("which", ["prescale_factor", "postscale_factor"])
@pytest.mark.parametrize("verb", ["allreduce", "allreduce_", "grouped_allreduce", "reducescatter"])
def test_factors_that_differ_between_ranks_are_an_error(which, verb):
    """Contract §2.6 reductions, §2.10 errors"""
    argument = [torch.ones(4)] if "grouped" in verb else torch.ones(4)
    error = error_of(getattr(hvd, verb), argument, op=hvd.Sum, name="factors", **{which: 1.0 + hvd.rank()})
    found = hvd.allreduce(common(torch.float32), op=hvd.Sum)
    near(found, common(torch.float32) * SIZE)
    is_error(error, hvd.HorovodInternalError)


@pytest.mark.parametrize("factor", [0.0, -1.0, 1e-30])
def test_a_factor_may_be_zero_negative_or_tiny(factor):
    """Contract §2.6 reductions"""
    found = hvd.allreduce(torch.ones(5), op=hvd.Sum, prescale_factor=factor)
    near(found, torch.full((5,), numpy.float32(factor).item() * SIZE))


@pytest.mark.parametrize("dtype", [torch.int16, torch.bool])
def test_what_is_not_scaled_is_an_error(dtype):
    """Contract §2.6: scaling of int16, uint16, bool"""
    found = []
    error = error_of(lambda: found.append(hvd.allreduce(torch.ones(4, dtype=dtype), op=hvd.Sum, prescale_factor=0.5)))
    near(hvd.allreduce(common(torch.float32), op=hvd.Sum), common(torch.float32) * SIZE)
    if error is None:  # the runtime may support more dtypes than the contract
        assert found[0].dtype == dtype
    else:
        is_error(error, ValueError, hvd.HorovodInternalError)
