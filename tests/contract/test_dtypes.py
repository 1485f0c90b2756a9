"""The dtypes and layouts that the ops accept, and the precision of the results."""
import pytest
import torch

import horovod.torch as hvd
from ranks import MOVED, REDUCED, SIZE, equal, error_of, everyone, gathered, is_error, mine, near, of, share, total

# Verb -> a call with a tensor whose first dimension is n · size, and the expected result.
VERBS = {
    "allreduce": (lambda t: hvd.allreduce(t, op=hvd.Sum), lambda shape, dtype: total(shape, dtype)),
    "grouped_allreduce": (lambda t: hvd.grouped_allreduce([t], op=hvd.Sum)[0],
                          lambda shape, dtype: total(shape, dtype)),
    "reducescatter": (lambda t: hvd.reducescatter(t, op=hvd.Sum),
                      lambda shape, dtype: total(shape, dtype)[share(shape[0], hvd.rank(), SIZE)]),
    "grouped_reducescatter": (lambda t: hvd.grouped_reducescatter([t], op=hvd.Sum)[0],
                              lambda shape, dtype: total(shape, dtype)[share(shape[0], hvd.rank(), SIZE)]),
    "allgather": (hvd.allgather, lambda shape, dtype: gathered(lambda rank: shape[0], shape[1:], dtype)),
    "grouped_allgather": (lambda t: hvd.grouped_allgather([t])[0],
                          lambda shape, dtype: gathered(lambda rank: shape[0], shape[1:], dtype)),
    "broadcast": (lambda t: hvd.broadcast(t, 0), lambda shape, dtype: of(0, shape, dtype)),
    "alltoall": (hvd.alltoall, lambda shape, dtype: torch.cat(
        [of(rank, shape, dtype)[share(shape[0], hvd.rank(), SIZE)] for rank in everyone()])),
}
TAKES = [(verb, dtype) for verb in VERBS for dtype in (REDUCED if "reduce" in verb else MOVED)]


@pytest.mark.parametrize("verb, dtype", TAKES)
def test_every_verb_takes_its_dtypes(verb, dtype):
    """Contract §2.5 table"""
    call, expected = VERBS[verb]
    shape = (SIZE * 2, 3)
    near(call(mine(shape, dtype)), expected(shape, dtype))


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.complex64, torch.uint16])
@pytest.mark.parametrize("verb", VERBS)
def test_other_dtypes_are_right_or_a_value_error(verb, dtype):
    """Contract §2.5: may be widened"""
    call, expected = VERBS[verb]
    shape = (SIZE * 2, 3)
    found = []
    error = error_of(lambda: found.append(call(mine(shape, dtype))))
    if error is not None:
        is_error(error, ValueError)
    elif dtype is torch.bool and "reduce" in verb:
        assert found[0].dtype in (torch.bool, torch.uint8)
    else:
        equal(found[0].double() if dtype is not torch.complex64 else found[0],
              expected(shape, dtype).double() if dtype is not torch.complex64 else expected(shape, dtype))


@pytest.mark.parametrize("verb", VERBS)
def test_a_tensor_that_is_not_contiguous_is_right_or_a_value_error(verb):
    """Contract §2.5: may be widened"""
    call, expected = VERBS[verb]
    shape = (SIZE * 2, 3)
    tensor = torch.empty(3, SIZE * 2).t().copy_(mine(shape))
    assert not tensor.is_contiguous()
    found = []
    error = error_of(lambda: found.append(call(tensor)))
    if error is None:
        equal(found[0].contiguous(), expected(shape, torch.float32))
    else:
        is_error(error, ValueError)


@pytest.mark.parametrize("verb", VERBS)
def test_a_view_into_another_tensor_is_taken_as_it_is(verb):
    """Contract §2.5 dtypes and layouts"""
    call, expected = VERBS[verb]
    shape = (SIZE * 2, 3)
    whole = torch.full((SIZE * 2 + 2, 3), -7.0)
    whole[1:-1] = mine(shape)
    equal(call(whole[1:-1]), expected(shape, torch.float32))
    equal(whole[0], torch.full((3,), -7.0))


def test_sums_of_small_numbers_are_exact_in_half_precision():
    """Contract §6.15 data layout"""
    values = torch.arange(-100, 101).to(torch.float16)
    equal(hvd.allreduce(values, op=hvd.Sum), values * SIZE)


def test_sums_of_large_integers_are_exact():
    """Contract §2.6: integers are not added in floating point"""
    large = 2 ** 60 // max(SIZE, 1) - hvd.rank()
    found = hvd.allreduce(torch.tensor([large, -large]), op=hvd.Sum)
    expected = sum(2 ** 60 // SIZE - rank for rank in everyone())
    assert found.tolist() == [expected, -expected]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_infinity_and_not_a_number_travel(dtype):
    """Contract §2.6 elementwise"""
    tensor = torch.tensor([1.0, 2.0, 3.0], dtype=dtype)
    if hvd.rank() == SIZE - 1:
        tensor[0], tensor[1] = float("inf"), float("nan")
    found = hvd.allreduce(tensor, op=hvd.Sum)
    assert torch.isinf(found[0]) and torch.isnan(found[1]) and found[2] == 3 * SIZE


@pytest.mark.parametrize("dtype", REDUCED)
@pytest.mark.parametrize("op", ["Min", "Max"])
def test_min_and_max_know_signs(dtype, op):
    """Contract §2.6 reductions"""
    tensor = torch.tensor([hvd.rank() - 1, 1 - hvd.rank(), 0], dtype=dtype)
    found = hvd.allreduce(tensor, op=getattr(hvd, op))
    rows = torch.stack([torch.tensor([rank - 1, 1 - rank, 0], dtype=dtype) for rank in everyone()])
    equal(found, rows.amin(0) if op == "Min" else rows.amax(0))


@pytest.mark.parametrize("verb", ["allreduce", "broadcast"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_allreduce_and_broadcast_take_no_dimensions(verb, dtype):
    """Contract §2.5 0-dim"""
    tensor = torch.tensor(7, dtype=dtype)
    found = hvd.allreduce(tensor, op=hvd.Sum) if verb == "allreduce" else hvd.broadcast(tensor, 0)
    equal(found, torch.tensor(7 * SIZE if verb == "allreduce" else 7, dtype=dtype))


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_takes_a_tensor_without_elements(verb):
    """Contract §2.5 zero elements"""
    call, expected = VERBS[verb]
    equal(call(torch.zeros(0, 3)), expected((0, 3), torch.float32))
