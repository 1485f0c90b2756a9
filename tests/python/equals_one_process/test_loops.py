"""Training loops: accumulation, closures, schedules."""
import copy

import pytest
import torch
from torch.optim import lr_scheduler
from training import STEPS, loss


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)


# ---- accumulation -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [{}, dict(groups=2), dict(gradient_views=True)], ids=str)
@pytest.mark.parametrize("clip", [False, True], ids=["", "clip"])
@pytest.mark.parametrize("passes", [2, 3])
def test_several_backward_passes(equals_one_process, passes, clip, way):
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model, backward_passes_per_step=passes, **way)
        for index, (x, y) in enumerate(world.batches(STEPS * passes)):
            (loss(model(x), y) / passes).backward()
            if (index + 1) % passes == 0:
                if clip:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
                optimizer.zero_grad()
        return model, optimizer

    equals_one_process(train)


def test_a_sum_of_losses(equals_one_process):
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model)
        for x, y in world.batches():
            optimizer.zero_grad()
            parts = [loss(model(part), wanted) for part, wanted in zip(x.chunk(2), y.chunk(2))]
            (sum(parts) / 2).backward()
            optimizer.step()
        return model, optimizer

    equals_one_process(train)


def test_a_loss_that_is_a_sum(equals_one_process):
    """With reduction="sum" the gradients must be summed over ranks, too."""
    def train(world):
        model = world.network()
        options = dict(op=world.hvd.Sum) if world.distributed else {}
        optimizer = world.wrap(adam(model), model, **options)
        for x, y in world.batches():
            optimizer.zero_grad()
            loss(model(x), y, reduction="sum").backward()
            optimizer.step()
        return model, optimizer

    equals_one_process(train)


def test_one_graph_twice(equals_one_process):
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model, backward_passes_per_step=2)
        for x, y in world.batches():
            optimizer.zero_grad()
            output = model(x)
            loss(output, y).backward(retain_graph=True)
            output.square().mean().backward()
            optimizer.step()
        return model, optimizer

    equals_one_process(train)


def test_an_accumulation_that_ends_early(equals_one_process):
    """The last step of an epoch has fewer passes than the others."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model, backward_passes_per_step=4)
        for epoch in range(3):
            for index, (x, y) in enumerate(world.batches(10, first=10 * epoch)):
                (loss(model(x), y) / 4).backward()
                if (index + 1) % 4 == 0 or index == 9:
                    optimizer.step()
                    optimizer.zero_grad()
        return model, optimizer

    equals_one_process(train)


def test_another_number_of_passes_in_mid_training(equals_one_process):
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model)
        for passes in (1, 3, 2):
            if world.distributed:
                optimizer.set_backward_passes_per_step(passes)
            for index, (x, y) in enumerate(world.batches(passes * 6)):
                (loss(model(x), y) / passes).backward()
                if (index + 1) % passes == 0:
                    optimizer.step()
                    optimizer.zero_grad()
        return model, optimizer

    equals_one_process(train)


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("whose", ["optimizer", "model"])
def test_zero_grad(equals_one_process, set_to_none, whose):
    def train(world):
        model = world.network()
        optimizer = world.wrap(sgd(model), model)
        for x, y in world.batches():
            loss(model(x), y).backward()
            optimizer.step()
            (model if whose == "model" else optimizer).zero_grad(set_to_none=set_to_none)
        return model, optimizer

    equals_one_process(train)


def test_gradients_that_the_script_computes(equals_one_process):
    """Gradients of torch.autograd.grad that the script assigns to p.grad. Our hooks do not see such gradients."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model)
        for x, y in world.batches():
            found = torch.autograd.grad(loss(model(x), y), list(model.parameters()))
            for parameter, gradient in zip(model.parameters(), found):
                parameter.grad = gradient
            optimizer.step()
        return model, optimizer

    equals_one_process(train)


@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_synchronize_and_then_a_plain_step(equals_one_process, op):
    """The gradients are reduced only once."""
    def train(world):
        model = world.network()
        options = dict(op=getattr(world.hvd, op)) if world.distributed else {}
        optimizer = world.wrap(adam(model), model, **options)
        for x, y in world.batches():
            optimizer.zero_grad()
            loss(model(x), y, reduction="mean" if op == "Average" else "sum").backward()
            world.synchronize(optimizer)
            optimizer.step()
        return model, optimizer

    equals_one_process(train, warns="optimizer.step() called without optimizer.skip_synchronize()")


@pytest.mark.parametrize("gradients", ["of one of two passes", "of some ranks", "of the script"])
def test_skip_synchronize_without_synchronize(equals_one_process, gradients):
    """The step is not made with gradients of a rank's own."""
    def train(world):
        model = world.network()
        passes = 2 if gradients == "of one of two passes" else 1
        optimizer = world.wrap(sgd(model), model, backward_passes_per_step=passes)
        for x, y in world.batches():
            optimizer.zero_grad()
            parts = world.parts(x, y)
            if gradients == "of some ranks":
                parts = [part for part in parts if part[0] == 0]
            value = sum(loss(model(x), y) for _, x, y in parts) / (1 if world.distributed else world.ranks)
            if gradients == "of the script":
                for parameter, found in zip(model.parameters(), torch.autograd.grad(value, model.parameters())):
                    parameter.grad = found
            elif parts:
                value.backward()
            with world.skip_synchronize(optimizer):
                optimizer.step()
        return model, optimizer

    equals_one_process(train)


def test_synchronize_twice(equals_one_process):
    def train(world):
        model = world.network()
        options = dict(op=world.hvd.Sum) if world.distributed else {}
        optimizer = world.wrap(adam(model), model, **options)
        for x, y in world.batches():
            optimizer.zero_grad()
            loss(model(x), y, reduction="sum").backward()
            world.synchronize(optimizer)
            world.synchronize(optimizer)
            with world.skip_synchronize(optimizer):
                optimizer.step()
        return model, optimizer

    equals_one_process(train)


# ---- closures ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [adam, sgd])
@pytest.mark.parametrize("clip", [False, True], ids=["", "clip"])
def test_closure(equals_one_process, make, clip):
    def train(world):
        model = world.network()
        optimizer = world.wrap(make(model), model)
        for x, y in world.batches():
            def closure():
                optimizer.zero_grad()
                value = loss(model(x), y)
                value.backward()
                if clip:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
                return value
            optimizer.step(closure)
        return model, optimizer

    equals_one_process(train)


def test_a_closure_after_a_backward_pass(equals_one_process):
    """The closure drops the gradients of the backward pass before it."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(sgd(model), model)
        for x, y in world.batches():
            loss(model(x), y).backward()

            def closure():
                optimizer.zero_grad()
                value = loss(model(x), y) * 3
                value.backward()
                return value
            optimizer.step(closure)
        return model, optimizer

    equals_one_process(train)


# ---- schedules --------------------------------------------------------------------------------------------------

SCHEDULES = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 3, 0.5),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9 ** step),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=STEPS + 1),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 4),
    "warm-up, then decay": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, total_iters=5), lr_scheduler.ExponentialLR(o, 0.9)], [5]),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1, factor=0.5),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.001, 0.1, 4, cycle_momentum=False),
    "SWALR": lambda o: torch.optim.swa_utils.SWALR(o, 0.5, 5),
}


@pytest.mark.parametrize("made", ["before wrapping", "after wrapping"])
@pytest.mark.parametrize("kind", SCHEDULES)
def test_schedule(equals_one_process, kind, made):
    """A schedule changes the options of the optimizer that makes the steps, and counts the steps of that optimizer."""
    def train(world):
        model = world.network()
        optimizer = sgd(model)
        if made == "before wrapping":
            schedule = SCHEDULES[kind](optimizer)
            optimizer = world.wrap(optimizer, model)
        else:
            optimizer = world.wrap(optimizer, model)
            schedule = SCHEDULES[kind](optimizer)
        rates = []
        for x, y in world.batches():
            optimizer.zero_grad()
            value = loss(model(x), y)
            value.backward()
            optimizer.step()
            if kind == "ReduceLROnPlateau":
                schedule.step(world.average(value))
            else:
                schedule.step()
            rates.append(float(optimizer.param_groups[0]["lr"]))
        assert len(set(rates)) > 1
        return model, optimizer, rates

    equals_one_process(train)


def test_a_schedule_that_comes_back_from_a_checkpoint(equals_one_process):
    def train(world):
        model = world.network()
        for _ in range(2):
            optimizer = world.wrap(sgd(model), model)
            schedule = SCHEDULES["OneCycleLR"](optimizer)
            if _:
                optimizer.load_state_dict(saved[0])
                schedule.load_state_dict(saved[1])
            for x, y in world.batches(STEPS // 2):
                optimizer.zero_grad()
                loss(model(x), y).backward()
                optimizer.step()
                schedule.step()
            saved = copy.deepcopy((optimizer.state_dict(), schedule.state_dict()))
        return model, optimizer

    equals_one_process(train)
