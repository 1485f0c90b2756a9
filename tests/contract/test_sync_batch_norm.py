"""Compares SyncBatchNorm, also on CPU, with one process that has the whole batch."""
import pytest
import torch

import horovod.torch as hvd
from ranks import SIZE, at_least, error_of, everyone, is_error

SHAPES = {"2-D": (5,), "3-D": (5, 4), "4-D": (5, 3, 2), "5-D": (5, 2, 2, 2)}
PLAIN = {"2-D": torch.nn.BatchNorm1d, "3-D": torch.nn.BatchNorm1d, "4-D": torch.nn.BatchNorm2d,
         "5-D": torch.nn.BatchNorm3d}


def batch_of(rank, shape, count=6, dtype=torch.float32):
    generator = torch.Generator().manual_seed(rank + 1)
    return torch.randn((count, *shape), generator=generator, dtype=torch.float64).mul(rank + 1).add(rank).to(dtype)


def near(found, expected, coarse=1):
    torch.testing.assert_close(found, expected, rtol=1e-4 * coarse, atol=1e-5 * coarse)


def compare(dimensions, count=lambda rank: 6, dtype=torch.float32, steps=2, **options):
    shape = SHAPES[dimensions]
    ours, plain = hvd.SyncBatchNorm(shape[0], **options).to(dtype), PLAIN[dimensions](shape[0], **options).to(dtype)
    rows = [count(rank) for rank in everyone()]
    here = slice(sum(rows[:hvd.rank()]), sum(rows[:hvd.rank() + 1]))
    for _ in range(steps):
        inputs = batch_of(hvd.rank(), shape, rows[hvd.rank()], dtype).requires_grad_()
        whole = torch.cat([batch_of(rank, shape, rows[rank], dtype) for rank in everyone()]).requires_grad_()
        found, expected = ours(inputs), plain(whole)
        weights = torch.linspace(-1, 2, whole.numel(), dtype=dtype).reshape(whole.shape)
        ours.zero_grad()
        plain.zero_grad()
        found.backward(weights[here])
        expected.backward(weights)
        near(found, expected[here])
        near(inputs.grad, whole.grad[here], coarse=5)
        if ours.weight is not None:  # these gradients are local, and an optimizer would reduce them
            near(hvd.allreduce(ours.weight.grad, op=hvd.Sum), plain.weight.grad, coarse=20)
            near(hvd.allreduce(ours.bias.grad, op=hvd.Sum), plain.bias.grad, coarse=20)
    if ours.running_mean is not None:
        near(ours.running_mean, plain.running_mean)
        near(ours.running_var, plain.running_var)
        assert ours.num_batches_tracked == plain.num_batches_tracked
    return ours, plain


@pytest.mark.parametrize("dimensions", SHAPES)
def test_it_normalises_as_if_all_ranks_were_one_batch(dimensions):
    """Contract §2.14 SyncBatchNorm"""
    compare(dimensions)


def test_batches_of_ranks_may_differ_in_size():
    """Contract §2.14: counts are gathered"""
    compare("4-D", count=lambda rank: rank + 2)


@at_least(2)
def test_a_rank_may_have_a_single_row():
    """Contract §2.14: counts are gathered"""
    compare("2-D", count=lambda rank: 1 if rank == 0 else 4)


@pytest.mark.parametrize("options", [dict(affine=False), dict(track_running_stats=False), dict(momentum=0.3),
                                     dict(eps=0.1), dict(momentum=None)], ids=lambda options: ",".join(options))
def test_its_options_are_those_of_batch_norm(options):
    """Contract §2.14 signature"""
    compare("4-D", **options)


def test_double_precision_is_kept():
    """Contract §2.14 SyncBatchNorm"""
    ours, _ = compare("3-D", dtype=torch.float64)
    assert ours.running_mean.dtype == torch.float64


def test_gradients_of_weight_and_bias_stay_local():
    """Contract §2.14 SyncBatchNorm"""
    layer = hvd.SyncBatchNorm(5)
    layer(batch_of(hvd.rank(), (5,))).backward(torch.full((6, 5), float(hvd.rank() + 1)))
    near(layer.bias.grad, torch.full((5,), 6.0 * (hvd.rank() + 1)))


def test_in_evaluation_it_is_ordinary_batch_norm():
    """Contract §2.14 eval mode"""
    ours, plain = compare("4-D")
    ours.eval(), plain.eval()
    inputs = batch_of(hvd.rank() + 7, SHAPES["4-D"])
    plain.load_state_dict(ours.state_dict())
    near(ours(inputs), plain(inputs))
    near(ours(inputs[:1]), plain(inputs[:1]))


@at_least(2)
def test_in_evaluation_ranks_need_not_meet():
    """Contract §2.14 eval mode"""
    layer = hvd.SyncBatchNorm(5).eval()
    for _ in range(hvd.rank() + 1):
        layer(batch_of(hvd.rank(), (5,)))


@pytest.mark.parametrize("shape", [(5,), ()])
def test_fewer_than_two_dimensions_are_a_value_error(shape):
    """Contract §2.14 SyncBatchNorm"""
    is_error(error_of(hvd.SyncBatchNorm(5), torch.ones(shape)), ValueError)


def test_it_is_a_batch_norm_of_torch():
    """Contract §2.14 SyncBatchNorm"""
    from torch.nn.modules.batchnorm import _BatchNorm
    layer = hvd.SyncBatchNorm(5, 1e-3, 0.2, True, True)
    assert isinstance(layer, _BatchNorm) and (layer.num_features, layer.eps, layer.momentum) == (5, 1e-3, 0.2)
    assert set(layer.state_dict()) == set(torch.nn.BatchNorm1d(5).state_dict())


def test_several_layers_one_after_the_other_work():
    """Contract §2.14: fixed names, one in flight at a time"""
    torch.manual_seed(1)
    layers = torch.nn.Sequential(torch.nn.Linear(5, 5), hvd.SyncBatchNorm(5), torch.nn.ReLU(), hvd.SyncBatchNorm(5))
    torch.manual_seed(1)
    norm = torch.nn.BatchNorm1d
    plain = torch.nn.Sequential(torch.nn.Linear(5, 5), norm(5), torch.nn.ReLU(), norm(5))
    found = layers(batch_of(hvd.rank(), (5,)))
    expected = plain(torch.cat([batch_of(rank, (5,)) for rank in everyone()]))
    near(found, expected[hvd.rank() * 6:][:6])
    found.sum().backward()
    assert layers[0].weight.grad is not None


def test_a_model_with_it_trains_as_one_process_does():
    """Contract §2.14 SyncBatchNorm, §2.12 DistributedOptimizer"""
    def made(norm):
        torch.manual_seed(5)
        return torch.nn.Sequential(torch.nn.Linear(5, 4), norm(4), torch.nn.Linear(4, 1))

    ours, plain = made(hvd.SyncBatchNorm), made(torch.nn.BatchNorm1d)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(ours.parameters(), lr=0.1), ours.named_parameters())
    reference = torch.optim.SGD(plain.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        ours(batch_of(hvd.rank(), (5,))).pow(2).mean().backward()
        optimizer.step()
        reference.zero_grad()
        plain(torch.cat([batch_of(rank, (5,)) for rank in everyone()])).pow(2).mean().backward()
        reference.step()
    for one, other in zip(ours.parameters(), plain.parameters()):
        near(one, other, coarse=50)


def test_one_rank_is_ordinary_batch_norm():
    """Contract §2.14 size 1"""
    if SIZE != 1:
        pytest.skip("one rank")
    compare("2-D")
