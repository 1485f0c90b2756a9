"""Tests of the gradients of the differentiable ops."""
import pytest
import torch

import horovod.torch as hvd
from ranks import SIZE, at_least, equal, everyone, halves, mine, near, of, share, total

DTYPES = [torch.float32, torch.float64]


def leaf(shape, dtype=torch.float32):
    return mine(shape, dtype).requires_grad_()


def rows_of(counts, rank):
    first = sum(counts[:rank])
    return slice(first, first + counts[rank])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["Sum", "Average"])
def test_the_gradient_of_allreduce_is_the_allreduce_of_gradients(dtype, op):
    """Contract §2.7 allreduce"""
    tensor = leaf((4, 3), dtype)
    hvd.allreduce(tensor, op=getattr(hvd, op)).backward(of(hvd.rank(), (4, 3), dtype) * 2)
    near(tensor.grad, total((4, 3), dtype) * 2 / (SIZE if op == "Average" else 1))


def test_the_gradient_of_allreduce_is_scaled_as_its_value_is():
    """Contract §2.7 allreduce"""
    tensor = leaf((5,))
    hvd.allreduce(tensor, op=hvd.Sum, prescale_factor=2.0, postscale_factor=4.0).backward(torch.ones(5))
    equal(tensor.grad, torch.full((5,), 8.0 * SIZE))


def test_the_gradient_of_a_sum_of_an_average():
    """Contract §2.7 allreduce"""
    tensor = leaf((5,))
    hvd.allreduce(tensor).sum().backward()
    near(tensor.grad, torch.ones(5))


@pytest.mark.parametrize("op", ["Sum", "Average"])
def test_the_gradients_of_grouped_allreduce(op):
    """Contract §2.7 grouped_allreduce"""
    tensors = [leaf((3,)), leaf((2, 2))]
    found = hvd.grouped_allreduce(tensors, op=getattr(hvd, op), prescale_factor=2.0)
    torch.autograd.backward(found, [mine((3,)), mine((2, 2))])
    for tensor, shape in zip(tensors, [(3,), (2, 2)]):
        near(tensor.grad, total(shape) * 2 / (SIZE if op == "Average" else 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("counts", [lambda rank: 3, lambda rank: rank + 1, lambda rank: rank * 2],
                         ids=["equal", "uneven", "none of rank 0"])
def test_the_gradient_of_allgather_is_the_average_of_its_own_rows(dtype, counts):
    """Contract §2.7 allgather"""
    counts = [counts(rank) for rank in everyone()]
    tensor = leaf((counts[hvd.rank()], 2), dtype)
    hvd.allgather(tensor).backward(of(hvd.rank(), (sum(counts), 2), dtype))
    expected = (total((sum(counts), 2), dtype) / SIZE)[rows_of(counts, hvd.rank())]
    torch.testing.assert_close(tensor.grad, expected, rtol=1e-6, atol=1e-8)


def test_equal_gradients_of_allgather_come_back_unchanged():
    """Contract §2.7 allgather [Horovod tests this]"""
    tensor = leaf((2, 3))
    upstream = torch.arange(SIZE * 2 * 3, dtype=torch.float32).reshape(SIZE * 2, 3)
    hvd.allgather(tensor).backward(upstream)
    torch.testing.assert_close(tensor.grad, upstream[hvd.rank() * 2:hvd.rank() * 2 + 2], rtol=1e-6, atol=1e-8)


def test_the_gradients_of_grouped_allgather():
    """Contract §2.7 grouped_allgather"""
    counts = [[rank + 1 for rank in everyone()], [2 for _ in everyone()]]
    tensors = [leaf((counts[0][hvd.rank()], 2)), leaf((2,))]
    found = hvd.grouped_allgather(tensors)
    gradients = [mine((sum(counts[0]), 2)), mine((2 * SIZE,))]
    torch.autograd.backward(found, gradients)
    for tensor, count, shape in zip(tensors, counts, [(sum(counts[0]), 2), (2 * SIZE,)]):
        expected = (total(shape) / SIZE)[rows_of(count, hvd.rank())]
        torch.testing.assert_close(tensor.grad, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("root", range(max(SIZE, 1)))
def test_the_gradient_of_broadcast_is_the_average_at_the_root(dtype, root):
    """Contract §2.7 broadcast"""
    tensor = leaf((4, 2), dtype)
    hvd.broadcast(tensor, root).backward(of(hvd.rank(), (4, 2), dtype))
    expected = total((4, 2), dtype) / SIZE * (hvd.rank() == root)
    torch.testing.assert_close(tensor.grad, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gradient_of_alltoall_goes_back_the_way_its_rows_came(dtype):
    """Contract §2.7 alltoall"""
    counts = [hvd.rank() + rank + 1 for rank in everyone()]
    tensor = leaf((sum(counts), 2), dtype)
    found, received = hvd.alltoall(tensor, torch.tensor(counts, dtype=torch.int32))
    assert not received.requires_grad
    # The gradient of each rank's received rows is the rank's number.
    found.backward(torch.full(found.shape, float(hvd.rank()), dtype=dtype))
    expected = torch.cat([torch.full((count, 2), float(rank), dtype=dtype) for rank, count in enumerate(counts)])
    equal(tensor.grad, expected)


def test_the_gradient_of_alltoall_without_splits():
    """Contract §2.7 alltoall"""
    tensor = leaf((SIZE * 2,))
    hvd.alltoall(tensor).backward(mine((SIZE * 2,)))
    equal(tensor.grad, torch.cat([of(rank, (SIZE * 2,))[hvd.rank() * 2:hvd.rank() * 2 + 2] for rank in everyone()]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["Sum", "Average"])
@pytest.mark.parametrize("rows", [SIZE * 2, 7], ids=["even", "uneven"])
def test_the_gradient_of_reducescatter_is_gathered(dtype, op, rows):
    """Contract §2.7 reducescatter"""
    tensor = leaf((rows, 2), dtype)
    found = hvd.reducescatter(tensor, op=getattr(hvd, op), prescale_factor=2.0, postscale_factor=4.0)
    upstream = torch.full(found.shape, float(hvd.rank() + 1), dtype=dtype)
    kept = upstream.clone()
    found.backward(upstream)
    expected = torch.empty(rows, 2, dtype=dtype)
    for rank in everyone():
        expected[share(rows, rank, SIZE)] = (rank + 1) * 8.0 * (SIZE if op == "Sum" else 1)
    equal(tensor.grad, expected)
    equal(upstream, kept)  # a quirk of Horovod is that it multiplies the upstream gradient in place


@pytest.mark.parametrize("op", ["Sum", "Average"])
def test_the_gradients_of_grouped_reducescatter(op):
    """Contract §2.7 grouped_reducescatter"""
    rows = [SIZE * 2, 5]
    tensors = [leaf((count, 2)) for count in rows]
    found = hvd.grouped_reducescatter(tensors, op=getattr(hvd, op))
    torch.autograd.backward(found, [torch.full(tensor.shape, float(hvd.rank() + 1)) for tensor in found])
    for tensor, count in zip(tensors, rows):
        expected = torch.empty(count, 2)
        for rank in everyone():
            expected[share(count, rank, SIZE)] = (rank + 1.0) * (SIZE if op == "Sum" else 1)
        equal(tensor.grad, expected)


@at_least(2)
@pytest.mark.parametrize("verb", ["allreduce", "allgather", "broadcast", "alltoall", "reducescatter"])
def test_gradients_stay_within_the_process_set(verb):
    """Contract §2.7 gradients, §5 process sets"""
    with halves() as (half, ranks):
        n, here = len(ranks), ranks.index(hvd.rank())
        tensor = leaf((n * 2,))
        call = {"allreduce": lambda: hvd.allreduce(tensor, op=hvd.Sum, process_set=half),
                "allgather": lambda: hvd.allgather(tensor, process_set=half),
                "broadcast": lambda: hvd.broadcast(tensor, ranks[-1], process_set=half),
                "alltoall": lambda: hvd.alltoall(tensor, process_set=half),
                "reducescatter": lambda: hvd.reducescatter(tensor, op=hvd.Sum, process_set=half)}[verb]
        found = call()
        found.backward(torch.full(found.shape, hvd.rank() + 1.0))
    numbers = torch.tensor([rank + 1.0 for rank in ranks])
    expected = {"allreduce": numbers.sum().repeat(n * 2), "allgather": numbers.mean().repeat(n * 2),
                "broadcast": numbers.mean().repeat(n * 2) * (here == n - 1),
                "alltoall": numbers.repeat_interleave(2), "reducescatter": numbers.repeat_interleave(2) * n}[verb]
    torch.testing.assert_close(tensor.grad, expected, rtol=1e-6, atol=1e-8)


def test_gradients_flow_through_several_ops():
    """Contract §2.7 gradients"""
    tensor = leaf((SIZE * 2,))
    (hvd.allreduce(hvd.allgather(tensor), op=hvd.Sum) * 3).sum().backward()
    torch.testing.assert_close(tensor.grad, torch.full((SIZE * 2,), 3.0 * SIZE), rtol=1e-6, atol=1e-8)


def test_what_needs_no_gradient_gets_none():
    """Contract §2.7 gradients"""
    assert not hvd.allreduce(mine(), op=hvd.Sum).requires_grad
    assert not hvd.allgather(mine()).requires_grad
    assert not hvd.broadcast(mine(), 0).requires_grad


def test_the_gradient_of_a_compressed_allreduce():
    """Contract §2.7 gradients, §2.11 Compression"""
    tensor = leaf((5,))
    hvd.allreduce(tensor, op=hvd.Sum, compression=hvd.Compression.fp16).sum().backward()
    equal(tensor.grad, torch.full((5,), float(SIZE)))
