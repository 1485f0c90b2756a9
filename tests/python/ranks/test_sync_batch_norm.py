"""A network with SyncBatchNorm gives the numbers of BatchNorm in one process that has the whole batch."""
import pytest
import torch


def parts(size, counts, channels=3, tail=(4,), dtype=torch.float64):
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(count, channels, *tail, generator=generator, dtype=torch.float64).mul(3).add(50 + of).to(dtype)
            for of, count in zip(range(size), counts)]


def compare(hvd, rank, size, counts, dtype=torch.float64, form=lambda x: x, tolerance=1e-9, **options):
    ours, plain = hvd.SyncBatchNorm(3, **options).to(dtype), torch.nn.BatchNorm2d(3, **options).to(dtype)
    for _ in range(2):
        given = parts(size, counts, tail=(4, 2), dtype=dtype)
        x = form(given[rank]).detach().requires_grad_()
        whole = torch.cat(given).requires_grad_()
        found, expected = ours(x), plain(whole)
        first = sum(counts[:rank])
        own = slice(first, first + counts[rank])
        weights = torch.linspace(-1, 1, whole.numel(), dtype=dtype).view(whole.shape)
        found.backward(weights[own])
        expected.backward(weights)
        near = dict(rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(found, expected[own], **near)
        torch.testing.assert_close(x.grad, whole.grad[own], **near)
        torch.testing.assert_close(ours.running_var, plain.running_var, **near)
    assert found.dtype == dtype


@pytest.mark.parametrize("counts", ["equal", "uneven", "nothing here", "one row"])
def test_batches_of_any_size(hvd, rank, size, counts):
    counts = {"equal": [4] * size, "uneven": [of + 1 for of in range(size)], "nothing here": [0] + [3] * (size - 1),
              "one row": [1] + [0] * (size - 1)}[counts]
    if size == 1 and not counts[0]:
        return
    compare(hvd, rank, size, counts)


def test_inputs_that_are_not_contiguous(hvd, rank, size):
    compare(hvd, rank, size, [4] * size, form=lambda x: x.to(memory_format=torch.channels_last))
    compare(hvd, rank, size, [4] * size, form=lambda x: x.transpose(2, 3).contiguous().transpose(2, 3))


@pytest.mark.parametrize("dtype,tolerance", [(torch.float32, 2e-4), (torch.bfloat16, 0.2)], ids=str)
def test_other_types(hvd, rank, size, dtype, tolerance):
    compare(hvd, rank, size, [8] * size, dtype, tolerance=tolerance)


def test_one_value_per_channel_is_refused_on_all_ranks(hvd, rank, size):
    layer = hvd.SyncBatchNorm(3)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        layer(torch.ones(1 if rank == 0 else 0, 3))
    assert layer(torch.ones(2, 3)).shape == (2, 3)


def test_frozen_parts(hvd, rank, size):
    layer = hvd.SyncBatchNorm(3)
    layer.weight.requires_grad_(False)
    x = torch.randn(4, 3)
    layer(x).sum().backward()  # only the bias gets a gradient
    assert torch.equal(layer.bias.grad, torch.full((3,), 4.0)) and layer.weight.grad is None
    with torch.no_grad():
        assert not layer(x).requires_grad


def test_within_a_compiled_model(hvd, rank, size):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), hvd.SyncBatchNorm(3), torch.nn.Tanh())
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    compiled = torch.compile(model, backend="eager")
    for _ in range(3):
        optimizer.zero_grad()
        compiled(torch.randn(4, 3) + rank).pow(2).sum().backward()
        optimizer.step()
    for value in model.state_dict().values():
        assert torch.equal(hvd.broadcast(value, 0), value)
