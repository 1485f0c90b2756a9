"""Compares DistributedOptimizer(op=hvd.Adasum) with Adasum of all ranks' steps in one process."""
import pytest
import torch

import horovod.torch as hvd
from ranks import SIZE, at_least, error_of, everyone, is_error, power_of_two, sets_of
from test_adasum import adasum
from test_optimizer import BASES, distributed, loss_of, model_of, same, train


def adasum_reference(base, steps=3):
    """Every rank makes its step by itself. The changes of the ranks are combined and added to the common start."""
    models = [model_of() for _ in everyone()]
    optimizers = [base(model.parameters()) for model in models]
    for step in range(steps):
        for rank, (model, optimizer) in enumerate(zip(models, optimizers)):
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()
        starts = [[parameter.detach().clone() for parameter in model.parameters()] for model in models]
        for optimizer in optimizers:
            optimizer.step()
        for index, start in enumerate(starts[0]):
            differences = [list(model.parameters())[index].detach() - start for model in models]
            combined = adasum([difference.flatten().double().cpu().numpy() for difference in differences])
            value = start + torch.from_numpy(combined).to(start).reshape(start.shape)
            for model in models:
                list(model.parameters())[index].data.copy_(value)
    return list(models[0].parameters())


@power_of_two
@pytest.mark.parametrize("base", ["SGD", "SGD plain", "Adam"])
def test_adasum_combines_the_steps_of_the_ranks(base):
    """Contract §2.12 Adasum delta optimizer"""
    model = model_of()
    found = train(model, distributed(model, BASES[base], op=hvd.Adasum))
    same(found, adasum_reference(BASES[base]), rtol=1e-3, atol=1e-5)


@power_of_two
def test_adasum_takes_compression_and_no_names():
    """Contract §2.12 Adasum delta optimizer"""
    model = model_of()
    found = train(model, distributed(model, BASES["SGD plain"], named=False, op=hvd.Adasum,
                                     compression=hvd.Compression.fp16))
    same(found, adasum_reference(BASES["SGD plain"]), rtol=1e-2, atol=1e-2)


@power_of_two
@at_least(2)
def test_the_adasum_optimizer_cannot_skip_its_synchronization():
    """Contract §2.12 Adasum delta optimizer"""
    model = model_of()
    optimizer = distributed(model, op=hvd.Adasum)
    nothing = optimizer.synchronize()

    def skip():
        with optimizer.skip_synchronize():
            pass

    error = error_of(skip)
    loss_of(model, hvd.rank()).backward()
    outstanding = error_of(optimizer.zero_grad)
    loss = optimizer.step(lambda: 7.0)
    assert nothing is None and loss == 7.0
    is_error(error, AssertionError)
    is_error(outstanding, AssertionError)


@power_of_two
@at_least(2)
def test_the_adasum_optimizer_adds_up_several_passes():
    """Contract §2.12 Adasum delta optimizer: countdown"""
    model = model_of()
    optimizer = distributed(model, BASES["SGD plain"], op=hvd.Adasum, backward_passes_per_step=2)
    found = train(model, optimizer, steps=1, passes=2)
    starts = list(model_of().parameters())
    differences = []
    for rank in everyone():
        each = model_of()
        plain = BASES["SGD plain"](each.parameters())
        for turn in range(2):
            loss_of(each, rank, turn).backward()
        plain.step()
        differences.append([new.detach() - old.detach() for new, old in zip(each.parameters(), starts)])
    for index, (parameter, start) in enumerate(zip(found, starts)):
        combined = adasum([each[index].flatten().double().cpu().numpy() for each in differences])
        expected = start.detach() + torch.from_numpy(combined).to(start).reshape(start.shape)
        torch.testing.assert_close(parameter.detach(), expected, rtol=1e-3, atol=1e-5)


@at_least(2)
def test_adasum_in_a_set_is_not_implemented():
    """Contract §2.12 factory checks"""
    with sets_of([0]) as first:
        error = error_of(distributed, model_of(), op=hvd.Adasum, process_set=first)
    is_error(error, NotImplementedError)


def test_adasum_initialises_gradients_with_zeros():
    """Contract §2.12 Adasum delta optimizer"""
    if SIZE not in (2, 4):
        pytest.skip("two or four ranks")
    model = model_of()
    optimizer = distributed(model, op=hvd.Adasum)
    gradients = [parameter.grad for parameter in model.parameters()]
    assert optimizer and all(gradient is not None and not gradient.any() for gradient in gradients)
