"""The gradients of Min, Max and Product depend on values. They are those of one process that has all tensors."""
import pytest
import torch

REDUCE = {"Min": torch.amin, "Max": torch.amax, "Product": lambda stacked, dim: stacked.prod(dim)}


def values(kind, rank, dtype):
    generator = torch.Generator().manual_seed(17 + rank)
    x = torch.randn(40, generator=generator).to(dtype) + 0.0
    if kind == "ties":
        x = x.round()
    if kind == "all equal":
        x = torch.full((40,), 2.0, dtype=dtype)
    if kind == "zeros":  # there are places with zeros on all ranks, on two, on one, and on none
        x[:5] = 0
        if rank == 0:
            x[10:15] = 0
        if rank <= 1:
            x[20:25] = 0
    return x


def loss(result, rank):
    """This rank's loss. The gradients are those of the sum of all ranks' losses."""
    weights = torch.linspace(1, 2, result.numel(), dtype=result.dtype).reshape(result.shape)
    return ((rank + 1) * weights * result).sum()


def expected(op, kind, rank, size, dtype, prescale, postscale):
    leaves = [values(kind, other, dtype).requires_grad_() for other in range(size)]
    result = REDUCE[op](torch.stack(leaves) * prescale, 0) * postscale
    sum(loss(result, other) for other in range(size)).backward()
    return leaves[rank].grad


@pytest.mark.parametrize("prescale,postscale", [(1.0, 1.0), (0.5, -2.0)], ids=str)
@pytest.mark.parametrize("kind", ["distinct", "ties", "all equal", "zeros"])
@pytest.mark.parametrize("op", REDUCE)
def test_allreduce(hvd, rank, size, op, kind, prescale, postscale):
    x = values(kind, rank, torch.float64).requires_grad_()
    loss(hvd.allreduce(x, op=getattr(hvd, op), prescale_factor=prescale, postscale_factor=postscale), rank).backward()
    torch.testing.assert_close(x.grad, expected(op, kind, rank, size, torch.float64, prescale, postscale))


@pytest.mark.parametrize("op", REDUCE)
def test_grouped_allreduce(hvd, rank, size, op):
    kinds = ["distinct", "ties", "zeros"]
    xs = [values(kind, rank, torch.float32).requires_grad_() for kind in kinds]
    sum(loss(result, rank) for result in hvd.grouped_allreduce(xs, op=getattr(hvd, op))).backward()
    for x, kind in zip(xs, kinds):
        torch.testing.assert_close(x.grad, expected(op, kind, rank, size, torch.float32, 1.0, 1.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("op", ["Min", "Max"])
def test_sixteen_bits(hvd, rank, size, op, dtype):
    x = values("ties", rank, dtype).requires_grad_()
    result = hvd.allreduce(x, op=getattr(hvd, op))
    result.backward(torch.ones_like(result))
    holders = sum(values("ties", other, dtype) == result.detach() for other in range(size))
    share = torch.where(x.detach() == result.detach(), size / holders, 0.0)
    assert x.grad.dtype == dtype
    torch.testing.assert_close(x.grad, share.to(dtype), rtol=1e-2, atol=0)


def test_of_a_gradient_that_is_not_contiguous(hvd, rank, size):
    x = values("distinct", rank, torch.float64).view(8, 5).detach().requires_grad_()
    hvd.allreduce(x, op=hvd.Max).t().backward(torch.ones(5, 8, dtype=torch.float64))
    stacked = torch.stack([values("distinct", other, torch.float64).view(8, 5) for other in range(size)])
    assert torch.equal(x.grad, (stacked.argmax(0) == rank) * float(size))
