"""Tests of the gradients of the collectives."""
import pytest
import torch


def leaf(rank, *shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("op", ["Sum", "Average"])
def test_allreduce(hvd, rank, size, op, dtype):
    x = leaf(rank, 5, 3, dtype=dtype)
    hvd.allreduce(x, op=getattr(hvd, op)).backward(torch.full((5, 3), rank + 1.0, dtype=dtype))
    total = size * (size + 1) / 2
    assert torch.equal(x.grad, torch.full((5, 3), total if op == "Sum" else total / size, dtype=dtype))


def test_allreduce_with_factors(hvd, rank, size):
    x = leaf(rank, 4)
    hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25).sum().backward()
    assert torch.equal(x.grad, torch.full((4,), size * 0.5))


def test_allreduce_within_a_network(hvd, rank, size):
    x = leaf(rank, 4)
    (hvd.allreduce(x * 3.0, op=hvd.Sum, name="inside") ** 2).sum().backward()
    total = sum(leaf(other, 4).detach() for other in range(size)) * 3.0
    torch.testing.assert_close(x.grad, 2 * total * size * 3.0)


def test_gradient_that_is_not_contiguous(hvd, rank, size):
    x = leaf(rank, 3, 4)
    hvd.allreduce(x, op=hvd.Sum).t().backward(torch.ones(4, 3))
    assert torch.equal(x.grad, torch.full((3, 4), float(size)))


def test_grouped_allreduce(hvd, rank, size):
    xs = [leaf(rank, i + 1) for i in range(4)]
    results = hvd.grouped_allreduce(xs, op=hvd.Average)
    torch.autograd.backward(results, [torch.full((i + 1,), rank + 1.0 + i) for i in range(4)])
    for i, x in enumerate(xs):
        assert torch.equal(x.grad, torch.full((i + 1,), (size + 1) / 2 + i))


def test_allgather(hvd, rank, size):
    x = leaf(rank, rank + 1, 3)
    upstream = torch.cat([torch.full((other + 1, 3), other + 0.5) for other in range(size)])
    hvd.allgather(x).backward(upstream)
    assert torch.equal(x.grad, torch.full((rank + 1, 3), rank + 0.5))


def test_allgather_averages_what_the_ranks_want(hvd, rank, size):
    x = leaf(rank, 2)
    (hvd.allgather(x) * (rank + 1)).sum().backward()
    assert torch.equal(x.grad, torch.full((2,), (size + 1) / 2))


def test_grouped_allgather(hvd, rank, size):
    xs = [leaf(rank, rank + 1, 2), leaf(rank, 3)]
    first, second = hvd.grouped_allgather(xs)
    torch.autograd.backward([first, second], [
        torch.cat([torch.full((other + 1, 2), float(other)) for other in range(size)]),
        torch.cat([torch.full((3,), other + 0.25) for other in range(size)])])
    assert torch.equal(xs[0].grad, torch.full((rank + 1, 2), float(rank)))
    assert torch.equal(xs[1].grad, torch.full((3,), rank + 0.25))


def test_broadcast(hvd, rank, size):
    root = size - 1
    x = leaf(rank, 6)
    hvd.broadcast(x, root).backward(torch.full((6,), rank + 1.0))
    assert torch.equal(x.grad, torch.full((6,), (size + 1) / 2 if rank == root else 0.0))


def test_no_gradient_is_kept_where_none_is_wanted(hvd, rank):
    x = leaf(rank, 3)
    with torch.no_grad():
        assert not hvd.allreduce(x).requires_grad
        assert not hvd.allgather(x).requires_grad
    assert hvd.allreduce(x).requires_grad
    assert not hvd.synchronize(hvd.allreduce_async(x)).requires_grad
