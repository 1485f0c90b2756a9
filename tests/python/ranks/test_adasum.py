"""The optimizer with op=hvd.Adasum, in the same training loops as other optimizers."""
import copy
import sys

import pytest
import torch


@pytest.fixture(autouse=True)
def a_power_of_two(size):
    if size & (size - 1) or size == 1:
        pytest.skip("Adasum needs 2, 4, 8, ... ranks")


def model_and_optimizer(hvd, make=lambda parameters: torch.optim.SGD(parameters, lr=0.5), **options):
    torch.manual_seed(3)
    model = torch.nn.Linear(4, 4).double()
    return model, hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters(), op=hvd.Adasum, **options)


def assert_equal_on_all_ranks(hvd, model):
    for parameter in model.parameters():
        assert torch.equal(hvd.broadcast(parameter.detach(), 0), parameter.detach())


def test_parallel_steps_are_averaged_and_orthogonal_ones_added(hvd, rank, size):
    parallel, orthogonal = (torch.nn.Parameter(torch.zeros(size).double()) for _ in range(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parallel, orthogonal], lr=1.0),
                                         [("parallel", parallel), ("orthogonal", orthogonal)], op=hvd.Adasum)
    for step in range(1, 4):
        (parallel * 2 + 0).sum().backward()
        orthogonal[rank].backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.testing.assert_close(parallel.detach(), torch.full((size,), -2.0 * step).double())
        torch.testing.assert_close(orthogonal.detach(), torch.full((size,), -1.0 * step).double())


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "RMSprop", "NAdam", "RAdam", "Rprop",
                                  "ASGD", "Adamax", "LBFGS", "Adafactor"])
def test_every_optimizer_of_torch(hvd, rank, name):
    if not hasattr(torch.optim, name):
        pytest.skip("not in this torch")
    model, optimizer = model_and_optimizer(hvd, lambda parameters: getattr(torch.optim, name)(parameters, lr=0.05))
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(rank)).double()

    def closure():
        for parameter in model.parameters():
            parameter.grad = None
        loss = (model(x) ** 2).mean()
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(4)]
    assert_equal_on_all_ranks(hvd, model)
    assert losses[-1] < losses[0]


def test_ranks_may_lack_gradients(hvd, rank, size):
    model, optimizer = model_and_optimizer(hvd)
    start = copy.deepcopy(model)
    if rank == 0:
        model(torch.ones(1, 4).double()).sum().backward()
    optimizer.step()
    assert_equal_on_all_ranks(hvd, model)
    moved = model.weight.detach() - start.weight.detach()
    # A rank that does not move its parameters does not change what the other ranks add.
    torch.testing.assert_close(moved, torch.full((4, 4), -0.5).double())


def test_gradients_of_frozen_parameters_that_the_program_sets(hvd, rank):
    model, optimizer = model_and_optimizer(hvd)
    model.requires_grad_(False)
    for _ in range(2):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, rank + 1)
        optimizer.step()
        assert_equal_on_all_ranks(hvd, model)


def test_gradients_may_be_clipped_before_the_step(hvd, rank):
    model, optimizer = model_and_optimizer(hvd)
    before = model.bias.detach().clone()
    (model(torch.ones(1, 4).double()).sum() * 100 * (rank + 1)).backward()
    torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)
    optimizer.step()
    torch.testing.assert_close(model.bias.detach(), before - 0.5)


needs_hooks = pytest.mark.skipif(not hasattr(torch.optim.Optimizer, "register_step_post_hook"), reason="torch < 2.0")


@needs_hooks
def test_hooks_after_the_step_find_the_combined_parameters(hvd, rank):
    model, optimizer = model_and_optimizer(hvd)
    averages = {each: copy.deepcopy(model) for each in ("of the optimizer", "of all optimizers")}

    def follow(name):
        def hook(stepped, *_):
            if stepped is optimizer:
                for average, parameter in zip(averages[name].parameters(), model.parameters()):
                    average.detach().lerp_(parameter.detach(), 0.5)
        return hook

    of_all = sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(follow("of all optimizers"))
    optimizer.register_step_post_hook(follow("of the optimizer"))
    # As in one process, a hook may drop the gradients by which the step was made.
    optimizer.register_step_post_hook(lambda *_: optimizer.zero_grad())
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(rank)).double()
    try:
        for _ in range(3):
            (model(x) ** 2).mean().backward()
            optimizer.step()
    finally:
        of_all.remove()
    for each in (model, *averages.values()):
        assert_equal_on_all_ranks(hvd, each)


class StepsByABaseClass(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                parameter -= 0.1 * parameter.grad


@needs_hooks
def test_a_step_that_calls_the_step_of_a_base_class(hvd, rank):
    """torch runs the hooks of both steps if some object is of the base class, here on rank 0 alone."""
    if rank == 0:
        torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    model, optimizer = model_and_optimizer(hvd, lambda parameters: StepsByABaseClass(parameters, lr=0.5))
    found = []
    optimizer.register_step_post_hook(lambda *_: found.append(copy.deepcopy(model)))
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(rank)).double()
    (model(x) ** 2).mean().backward()
    optimizer.step()
    for each in (model, found[-1]):
        assert_equal_on_all_ranks(hvd, each)


def test_a_gradient_scaler_leaves_a_step_out_on_all_ranks_or_none(hvd, rank):
    model, optimizer = model_and_optimizer(hvd)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=1000)
    before = copy.deepcopy(model)
    for step in range(3):
        optimizer.zero_grad()
        loss = model(torch.ones(1, 4).double()).sum()
        scaler.scale(loss * (float("inf") if step == 1 and rank == 0 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == (64.0 if step == 0 else 32.0)
        assert_equal_on_all_ranks(hvd, model)
    torch.testing.assert_close(model.bias.detach(), before.bias.detach() - 1.0)


@pytest.mark.parametrize("fused", [False, True])
def test_a_rank_without_gradients_and_a_gradient_scaler(hvd, rank, fused):
    model, optimizer = model_and_optimizer(hvd, lambda parameters: torch.optim.Adam(parameters, lr=0.5, fused=fused))
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=1000)
    before = copy.deepcopy(model)
    for factor, scale in ((1.0, 64.0), (float("inf"), 32.0)):
        optimizer.zero_grad()
        if rank == 0:
            scaler.scale(model(torch.ones(1, 4).double()).sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == scale
        assert_equal_on_all_ranks(hvd, model)
    torch.testing.assert_close(model.bias.detach(), before.bias.detach() - 0.5)


def test_no_rank_has_gradients_for_a_gradient_scaler(hvd):
    """The error that torch gives in one process."""
    model, optimizer = model_and_optimizer(hvd)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    scaler.scale(torch.zeros(()))
    optimizer.zero_grad()  # before that, gradients of zeros are there
    with pytest.raises(AssertionError, match="No inf checks were recorded"):
        scaler.step(optimizer)


def test_copies_and_pickles_and_schedulers(hvd, rank):
    model, optimizer = model_and_optimizer(hvd)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    before = model.bias.detach().clone()
    for _ in range(2):
        model(torch.ones(1, 4).double()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    torch.testing.assert_close(model.bias.detach(), before - 0.75)
    copied = copy.deepcopy(optimizer)
    parameter = copied.param_groups[0]["params"][1]
    parameter.sum().backward()
    copied.step()
    assert torch.equal(hvd.broadcast(parameter.detach(), 0), parameter.detach())
    assert type(optimizer).__name__ == "SGD" and isinstance(optimizer, torch.optim.SGD) and optimizer.op == hvd.Adasum
    again = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    model(torch.ones(1, 4).double()).sum().backward()
    again.synchronize()
    with again.skip_synchronize():
        again.step()
    assert_equal_on_all_ranks(hvd, model)
