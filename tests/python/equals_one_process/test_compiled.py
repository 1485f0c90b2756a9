"""torch.compile of models and of whole steps. Compiled ranks give the numbers of one process that is not compiled."""
import shutil

import pytest
import torch
from training import loss

NEEDS_COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="inductor compiles with g++")


@pytest.fixture(autouse=True)
def compiles_anew():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(world, what, backend):
    return torch.compile(what, backend=backend) if world.distributed else what


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


# The backend inductor is left out: it takes seconds, and uses gradients as aot_eager does.
@pytest.mark.parametrize("backend, when", [
    ("eager", "before wrapping"), ("eager", "after wrapping"), ("aot_eager", "before wrapping"),
    pytest.param("inductor", "before wrapping", marks=NEEDS_COMPILER)])
def test_model(equals_one_process, backend, when):
    def train(world):
        model = fast = world.network()
        if when == "before wrapping":
            fast = compiled(world, model, backend)
        optimizer = world.wrap(adam(model), model)
        if when == "after wrapping":
            fast = compiled(world, model, backend)
        for x, y in world.batches():
            optimizer.zero_grad()
            loss(fast(x), y).backward()
            optimizer.step()
        return model, optimizer

    equals_one_process(train)


def test_parameters_named_as_the_compiled_model_names_them(equals_one_process):
    """The names are _orig_mod.*, on all ranks."""
    def train(world):
        model = torch.compile(world.network(), backend="eager")
        optimizer = world.wrap(adam(model), model, groups=2)
        for x, y in world.batches():
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
        return model._orig_mod, optimizer

    equals_one_process(train)


@pytest.mark.parametrize("backend, clip, way", [
    ("eager", False, {}), ("eager", True, {}), ("eager", False, dict(groups=2)), ("aot_eager", False, {})],
    ids=["eager", "eager, clip", "eager, two groups", "aot_eager"])
def test_whole_step(equals_one_process, backend, clip, way):
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model, **way)

        def step(x, y):
            optimizer.zero_grad()
            value = loss(model(x), y)
            value.backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            optimizer.step()
            return value

        step = compiled(world, step, backend)
        for x, y in world.batches():
            step(x, y)
        return model, optimizer

    equals_one_process(train)


def test_forward_and_backward(equals_one_process):
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model)

        def compute(x, y):
            value = loss(model(x), y)
            value.backward()
            return value

        compute = compiled(world, compute, "aot_eager")
        for x, y in world.batches():
            optimizer.zero_grad()
            compute(x, y)
            optimizer.step()
        return model, optimizer

    equals_one_process(train)


def test_the_optimizers_step(equals_one_process):
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model)
        step = compiled(world, lambda: optimizer.step(), "eager")
        for x, y in world.batches():
            optimizer.zero_grad()
            loss(model(x), y).backward()
            step()
        return model, optimizer

    equals_one_process(train)
