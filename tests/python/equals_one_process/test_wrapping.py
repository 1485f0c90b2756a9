"""Wrapping keeps the properties of the optimizer, and the options of DistributedOptimizer do not change the numbers."""
import copy
import io
import pickle

import pytest
import torch
from training import STEPS, loss


def loop(world, model, optimizer, *arguments, steps=STEPS, first=0, **options):
    for x, y in world.batches(steps, first):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step(*arguments, **options)
    return model, optimizer


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


# ---- options of DistributedOptimizer ----------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [1, 2, 3, 50])
@pytest.mark.parametrize("views", [False, True], ids=["", "shared memory"])
def test_groups(equals_one_process, groups, views):
    def train(world):
        model = world.network()
        return loop(world, model, world.wrap(adam(model), model, groups=groups, gradient_views=views))

    equals_one_process(train)


@pytest.mark.parametrize("views", [False, True], ids=["", "shared memory"])
def test_fused_steps_of_a_parameter_that_is_not_contiguous(equals_one_process, views):
    """A fused optimizer takes the memory of parameter and gradient as it is, so both must have the same strides."""
    def train(world):
        model = world.network()
        model[0].weight = torch.nn.Parameter(model[0].weight.detach().t().contiguous().t())
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
        return loop(world, model, world.wrap(optimizer, model, gradient_views=views))

    equals_one_process(train)


@pytest.mark.parametrize("members", [[[0, 3]], [[0], [1, 2, 3]], [[3, 0], [2, 1]]], ids=str)
def test_lists_of_parameters_as_groups(equals_one_process, members):
    def train(world):
        model = world.network()
        parameters = list(model.parameters())
        groups = [[parameters[index] for index in group] for group in members]
        return loop(world, model, world.wrap(adam(model), model, groups=groups))

    equals_one_process(train)


@pytest.mark.parametrize("factor", [0.5, 2.0, 7.0])
def test_gradient_predivide_factor(equals_one_process, factor):
    def train(world):
        model = world.network()
        return loop(world, model, world.wrap(adam(model), model, gradient_predivide_factor=factor))

    equals_one_process(train)


@pytest.mark.parametrize("clip", ["before", "after"])
@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_a_state_loaded_between_backward_and_step(equals_one_process, op, clip):
    """The gradients stay, and are not reduced again."""
    def train(world):
        model = world.network()
        options = {"op": getattr(world.hvd, op)} if world.distributed else {}
        optimizer = world.wrap(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model, **options)
        for x, y in world.batches():
            (loss(model(x), y) / (world.size if op == "Sum" else 1)).backward()
            if clip == "before":
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.load_state_dict(optimizer.state_dict())
            if clip == "after":
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
        return model, optimizer

    equals_one_process(train)


def test_sum_with_a_smaller_rate(equals_one_process, hvd):
    def train(world):
        model = world.network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.4 / world.size, momentum=0.9)
        optimizer = world.wrap(optimizer, model, op=hvd.Sum)
        loop(world, model, optimizer)
        return model

    equals_one_process(train)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_models_of_other_types(equals_one_process, dtype):
    def train(world):
        model = world.network().to(getattr(torch, dtype))
        optimizer = world.wrap(torch.optim.SGD(model.parameters(), lr=0.05), model)
        for x, y in world.batches():
            optimizer.zero_grad()
            loss(model(x.to(model[0].weight.dtype)), y).backward()
            optimizer.step()
        return model

    equals_one_process(train, **dict(float32=dict(rtol=1e-4, atol=1e-6), bfloat16=dict(rtol=5e-2, atol=2e-2))[dtype])


def test_complex_parameters(equals_one_process):
    def train(world):
        model = world.network(torch.nn.Linear, 6, 3, dtype=torch.complex128)
        optimizer = world.wrap(adam(model), model)
        for x, y in world.batches():
            optimizer.zero_grad()
            loss(model(x.to(torch.complex128)).abs(), y).backward()
            optimizer.step()
        return model, optimizer

    equals_one_process(train)


class Conjugates(torch.nn.Module):
    """Parameters whose gradients autograd returns as conjugates that are not computed, or as negatives."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([1 + 2j, 3j, -1], dtype=torch.complex128))
        self.phase = torch.nn.Parameter(torch.tensor(0.3))

    def forward(self, x):
        wave = torch.complex(torch.zeros_like(self.phase), self.phase).conj().imag
        return (self.scale.conj() * x[:, :3]).real.mean() + wave * x.mean()


@pytest.mark.parametrize("options", [{}, dict(groups=1), dict(gradient_views=True)],
                         ids=["plain", "group", "shared memory"])
def test_gradients_that_are_conjugates(equals_one_process, options):
    def train(world):
        model = world.network(Conjugates)
        optimizer = world.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model, **options)
        for x, _ in world.batches(4):
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
        return model, optimizer

    equals_one_process(train)


# ---- the optimizer as an object ---------------------------------------------------------------------------------


class WithArguments(torch.optim.SGD):
    """An optimizer whose constructor needs another argument, and keeps that argument as an attribute."""

    def __init__(self, params, factor, *, lr):
        self.factor = factor
        super().__init__(params, lr=lr)

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.mul_(self.factor)
        return super().step(closure)


class WithASizeOfSteps(torch.optim.SGD):
    def step(self, size=1.0, *, scale=1.0):
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter -= group["lr"] * size * scale * parameter.grad


class OfItsOwn(torch.optim.Optimizer):
    """An optimizer that inherits only from torch.optim.Optimizer, as in the code of many papers."""

    def __init__(self, params, lr, **defaults):
        super().__init__(params, dict(lr=lr, **defaults))
        self.calls = 0

    @torch.no_grad()
    def step(self, closure=None):
        value = None
        if closure is not None:
            with torch.enable_grad():
                value = closure()
        self.calls += 1
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                mean = state.setdefault("mean", torch.zeros_like(parameter))
                mean.lerp_(parameter.grad, 0.3)
                parameter.sub_(mean.sign(), alpha=group["lr"] / self.calls)
        return value


@pytest.mark.parametrize("call", [(), (0.5,), dict(scale=0.5)], ids=str)
def test_a_class_whose_step_takes_arguments(equals_one_process, call):
    def train(world):
        model = world.network()
        optimizer = world.wrap(WithASizeOfSteps(model.parameters(), lr=0.1), model)
        options = call if isinstance(call, dict) else {}
        loop(world, model, optimizer, *() if options else call, **options)
        return model

    equals_one_process(train)


@pytest.mark.parametrize("make", [lambda p: WithArguments(p, 0.5, lr=0.1), lambda p: OfItsOwn(p, 0.01, weight=3.0)],
                         ids=["required arguments", "written from nothing"])
def test_classes_of_the_users_own(equals_one_process, make):
    def train(world):
        model = world.network()
        optimizer = world.wrap(make(model.parameters()), model)
        assert optimizer.factor == 0.5 if isinstance(optimizer, WithArguments) else isinstance(optimizer, OfItsOwn)
        return loop(world, model, optimizer)

    equals_one_process(train)


def test_an_optimizer_that_another_one_drives(equals_one_process):
    """Lookahead keeps slow weights, and drives a distributed optimizer."""
    class Lookahead:
        def __init__(self, optimizer):
            self.optimizer, self.count = optimizer, 0
            self.slow = [parameter.detach().clone()
                         for group in optimizer.param_groups for parameter in group["params"]]

        def zero_grad(self):
            self.optimizer.zero_grad()

        def step(self):
            self.optimizer.step()
            self.count += 1
            if self.count % 5 == 0:
                fast = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
                with torch.no_grad():
                    for slow, parameter in zip(self.slow, fast):
                        slow.lerp_(parameter, 0.5)
                        parameter.copy_(slow)

    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model)
        loop(world, model, Lookahead(optimizer))
        return model, optimizer

    equals_one_process(train)


def test_sharpness_aware_steps(equals_one_process):
    """A step has two passes. The gradients of the first pass move the parameters, and the second pass computes the
    gradients there."""
    class SAM(torch.optim.Optimizer):
        def __init__(self, params, rho=0.05, **options):
            super().__init__(params, dict(rho=rho))
            self.base = torch.optim.SGD(self.param_groups, **options)

        def step(self, closure):
            parameters = [parameter for group in self.param_groups for parameter in group["params"]]
            with torch.enable_grad():
                closure()
            norm = torch.stack([parameter.grad.norm() for parameter in parameters]).norm()
            moves = [parameter.grad * (0.05 / norm) for parameter in parameters]
            with torch.no_grad():
                torch._foreach_add_(parameters, moves)
            with torch.enable_grad():
                closure()
            with torch.no_grad():
                torch._foreach_sub_(parameters, moves)
            self.base.step()

    def train(world):
        model = world.network()
        optimizer = world.wrap(SAM(model.parameters(), lr=0.1, momentum=0.9), model)
        for x, y in world.batches():
            def closure():
                optimizer.zero_grad()
                value = loss(model(x), y)
                value.backward()
                return value
            optimizer.step(closure)
        return model

    equals_one_process(train)


# ---- copies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, dict(groups=2), dict(gradient_predivide_factor=2.0)], ids=str)
@pytest.mark.parametrize("steps", [0, 5])
def test_a_copy_of_model_and_optimizer(equals_one_process, steps, options):
    """The copy is distributed, too. The original and the copy train on independently."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model, **options)
        loop(world, model, optimizer, steps=steps)
        pair = copy.deepcopy((model, optimizer))
        loop(world, model, optimizer, steps=5, first=100)
        loop(world, *pair, steps=5, first=200)
        loop(world, model, optimizer, steps=5, first=300)
        return (model, optimizer), pair

    equals_one_process(train)


@pytest.mark.parametrize("how", ["pickle", "torch.save", "deepcopy"])
def test_a_state_dict_that_travels(equals_one_process, how):
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model)
        loop(world, model, optimizer, steps=10)
        saved = optimizer.state_dict()
        if how == "pickle":
            saved = pickle.loads(pickle.dumps(saved))
        elif how == "deepcopy":
            saved = copy.deepcopy(saved)
        else:
            file = io.BytesIO()
            torch.save(saved, file)
            file.seek(0)
            saved = torch.load(file, weights_only=True)
        again = world.network()
        again.load_state_dict(model.state_dict())
        other = world.wrap(adam(again), again)
        other.load_state_dict(saved)
        return loop(world, again, other, steps=10, first=10)

    equals_one_process(train)


def test_wrapped_twice_in_a_row(equals_one_process):
    """The optimizer is wrapped again, as when a notebook's cell is run again."""
    def train(world):
        model = world.network()
        optimizer = adam(model)
        for first in (0, 10):
            optimizer = world.wrap(optimizer, model)
            loop(world, model, optimizer, steps=10, first=first)
        return model, optimizer

    equals_one_process(train)


def test_a_new_optimizer_for_the_same_model(equals_one_process):
    """Training has phases, each with a new optimizer. The old one is dropped, or kept without being used."""
    def train(world):
        model = world.network()
        kept = []
        for phase in range(3):
            optimizer = world.wrap(torch.optim.SGD(model.parameters(), lr=0.1 / (phase + 1)), model)
            kept = [optimizer] if phase == 1 else kept
            loop(world, model, optimizer, steps=7, first=10 * phase)
        return model

    equals_one_process(train)


def test_steps_before_the_parameters_are_equal(equals_one_process):
    """The script wraps the optimizer, then loads the same checkpoint on all ranks, without a broadcast."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model, begin=False)
        torch.manual_seed(3)
        model.load_state_dict({key: torch.randn_like(value) for key, value in model.state_dict().items()})
        return loop(world, model, optimizer)

    equals_one_process(train)
