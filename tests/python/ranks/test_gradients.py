"""Tests of the gradients of the collectives."""
import pytest
import torch
from torch.autograd import forward_ad


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


OPS = pytest.mark.parametrize("op", ["Sum", "Average", "Adasum", "Min", "Max", "Product"])


@OPS
def test_grouped_results_go_through_backward_one_after_the_other(hvd, rank, size, op):
    op = getattr(hvd, op)
    together, alone = ([leaf(rank + 7 * i, 4) for i in range(3)] for _ in range(2))
    for result in hvd.grouped_allreduce(together, op=op):
        result.backward(torch.full((4,), rank + 1.0))
    for x, other in zip(together, alone):
        hvd.allreduce(other, op=op).backward(torch.full((4,), rank + 1.0))
        torch.testing.assert_close(x.grad, other.grad)


@pytest.mark.parametrize("verb", ["allgather", "reducescatter"])
def test_other_grouped_results_one_after_the_other(hvd, rank, size, verb):
    together, alone = ([leaf(rank + 7 * i, 2 * size, 2) for i in range(3)] for _ in range(2))
    for result in getattr(hvd, f"grouped_{verb}")(together):
        result.square().sum().backward()
    for x, other in zip(together, alone):
        getattr(hvd, verb)(other).square().sum().backward()
        torch.testing.assert_close(x.grad, other.grad)


@pytest.mark.parametrize("op", ["Sum", "Average", "Min", "Max", "Product"])
def test_second_derivatives_of_a_group(hvd, rank, size, op):
    op = getattr(hvd, op)
    together, alone = ([leaf(rank + 7 * i, 4, dtype=torch.float64) for i in range(2)] for _ in range(2))
    slopes = torch.autograd.grad([each.pow(3).sum() for each in hvd.grouped_allreduce(together, op=op)], together,
                                 create_graph=True)
    sum(slope.square().sum() for slope in slopes).backward()
    slopes = [torch.autograd.grad(hvd.allreduce(each, op=op).pow(3).sum(), each, create_graph=True)[0]
              for each in alone]
    for slope in slopes:
        slope.square().sum().backward()
    for x, other in zip(together, alone):
        torch.testing.assert_close(x.grad, other.grad)


IN_PLACE = {
    "allreduce_": lambda hvd, x: hvd.allreduce_(x, op=hvd.Sum, name="in place"),
    "allreduce_async_": lambda hvd, x: hvd.synchronize(hvd.allreduce_async_(x)),
    "grouped_allreduce_": lambda hvd, x: hvd.grouped_allreduce_([torch.ones(2), x], name="in place, grouped"),
    "broadcast_": lambda hvd, x: hvd.broadcast_(x, 0),
    "broadcast_parameters": lambda hvd, x: hvd.broadcast_parameters({"x": x}, 0),
}


@pytest.mark.parametrize("verb", IN_PLACE)
def test_backward_notices_what_an_operation_in_place_has_changed(hvd, rank, verb):
    for _ in range(2):
        x = leaf(rank, 4)
        y = x * 2
        z = y * y
        with torch.no_grad():
            IN_PLACE[verb](hvd, y)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()
    with torch.inference_mode():
        IN_PLACE[verb](hvd, torch.ones(3))


def test_backward_notices_that_a_tensor_of_a_group_was_changed(hvd, rank):
    x = leaf(rank, 4)
    y = x * 2
    result, = hvd.grouped_allreduce([y], op=hvd.Max)
    with torch.no_grad():
        y.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


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


VERBS = {
    "allreduce": lambda hvd, x: hvd.allreduce(x),
    "grouped_allreduce": lambda hvd, x: hvd.grouped_allreduce([x]),
    "allgather": lambda hvd, x: hvd.allgather(x),
    "grouped_allgather": lambda hvd, x: hvd.grouped_allgather([x]),
    "broadcast": lambda hvd, x: hvd.broadcast(x, 0),
    "alltoall": lambda hvd, x: hvd.alltoall(x),
    "reducescatter": lambda hvd, x: hvd.reducescatter(x),
    "grouped_reducescatter": lambda hvd, x: hvd.grouped_reducescatter([x]),
}


def test_a_tangent_is_not_lost_in_silence(hvd, rank, size):
    with forward_ad.dual_level():
        x = torch.full((size,), rank + 1.0)
        dual = forward_ad.make_dual(x, x * 2)
        for verb in VERBS.values():
            verb(hvd, x)
            with pytest.raises(NotImplementedError, match="with a tangent"):
                verb(hvd, dual)
        _, tangent = forward_ad.unpack_dual(dual)
        assert torch.equal(hvd.allreduce(tangent), torch.full((size,), size + 1.0))
