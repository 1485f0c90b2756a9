"""Every optimizer of torch, with each of its options, and with every way in which its state can be made or loaded."""
import copy
import inspect
import io
import os

import numpy
import pytest
import torch
from training import STEPS, OneProcess, loss

# Option of torch's optimizers -> arguments to try: the option, and other options that it needs.
OPTIONS = {
    "lr": [dict(lr=torch.tensor(0.01))],
    "momentum": [dict(momentum=0.9)],
    "dampening": [dict(momentum=0.9, dampening=0.3)],
    "nesterov": [dict(momentum=0.9, nesterov=True)],
    "weight_decay": [dict(weight_decay=0.1), dict(momentum=0.9, weight_decay=0.1)],
    "decoupled_weight_decay": [dict(weight_decay=0.1, decoupled_weight_decay=True)],
    "amsgrad": [dict(amsgrad=True)],
    "centered": [dict(centered=True)],
    "lr_decay": [dict(lr_decay=0.1)],
    "initial_accumulator_value": [dict(initial_accumulator_value=0.5)],
    "lambd": [dict(lambd=0.1, t0=5)],
    "foreach": [dict(foreach=True), dict(foreach=False)],
    "fused": [dict(fused=True)],
    "maximize": [dict(maximize=True)],
    "capturable": [dict(capturable=True)],
}


def classes():
    found = {each for each in vars(torch.optim).values()
             if inspect.isclass(each) and issubclass(each, torch.optim.Optimizer)}
    assert torch.optim.Adam in found
    # LBFGS is tested below, and SparseAdam in test_sparse.py.
    found -= {torch.optim.Optimizer, torch.optim.LBFGS, torch.optim.SparseAdam}
    return sorted(found, key=lambda each: each.__name__)


def network_for(world, optimizer_class):
    # Muon optimizes only matrices.
    return world.network(bias=optimizer_class.__name__ != "Muon")


def is_taken(optimizer_class, options):
    """True if torch accepts the options on this machine. Some are for GPUs only."""
    model = network_for(OneProcess(), optimizer_class)
    try:
        optimizer = optimizer_class(model.parameters(), **options)
        model(torch.ones(2, 6)).sum().backward()
        optimizer.step()
    except (AssertionError, RuntimeError, TypeError, ValueError):
        return False
    return True


def cases():
    torch.set_default_dtype(torch.float64)
    try:
        for optimizer_class in classes():
            yield pytest.param(optimizer_class, {}, id=optimizer_class.__name__)
            names = inspect.signature(optimizer_class).parameters
            for options in [each for name in names for each in OPTIONS.get(name, [])]:
                if options.keys() <= names.keys() and is_taken(optimizer_class, options):
                    words = "-".join(f"{name}={float(value):g}" for name, value in options.items())
                    yield pytest.param(optimizer_class, options, id=f"{optimizer_class.__name__}-{words}")
    finally:
        torch.set_default_dtype(torch.float32)


def trained(model, optimizer, batches):
    for x, y in batches:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()


def checkpoint(optimizer_class, options):
    """The bytes of a checkpoint that one process saved after half of the steps."""
    world = OneProcess()
    model = network_for(world, optimizer_class)
    optimizer = optimizer_class(model.parameters(), **copy.deepcopy(options))
    trained(model, optimizer, world.batches(STEPS // 2))
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    return file.getvalue()


def load(saved, model, optimizer):
    saved = torch.load(io.BytesIO(saved), weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])


def fresh(world, make, model, saved):
    return world.wrap(make(), model)


def resumed_by_the_root(world, make, model, saved):
    """Only the root reads the checkpoint, as in Horovod's example scripts."""
    optimizer = world.wrap(make(), model, begin=False)
    if world.rank == 0:
        load(saved, model, optimizer)
    world.begin(model, optimizer)
    return optimizer


def loaded_before_wrapping(world, make, model, saved):
    optimizer = make()
    load(saved, model, optimizer)
    return world.wrap(optimizer, model)


def loaded_by_the_root_before_wrapping(world, make, model, saved):
    optimizer = make()
    if world.rank == 0:
        load(saved, model, optimizer)
    return world.wrap(optimizer, model)


def loaded_after_wrapping(world, make, model, saved):
    optimizer = world.wrap(make(), model)
    load(saved, model, optimizer)
    return optimizer


def trained_before_wrapping(world, make, model, saved):
    """Every rank trains by itself on equal data before the optimizer is wrapped. The state was never saved."""
    optimizer = make()
    world.begin(model)
    trained(model, optimizer, OneProcess().batches(STEPS // 2))
    return world.wrap(optimizer, model)


STARTS = [fresh, resumed_by_the_root, loaded_before_wrapping, loaded_after_wrapping]


def compare(equals_one_process, optimizer_class, options, start):
    def train(world):
        model = network_for(world, optimizer_class)

        def make():
            return optimizer_class(model.parameters(), **copy.deepcopy(options))

        optimizer = start(world, make, model, saved)
        trained(model, optimizer, world.batches(STEPS // 2, first=STEPS // 2))
        return model, optimizer

    saved = checkpoint(optimizer_class, options)
    # Muon computes in bfloat16, so that its limits are wider.
    equals_one_process(train, **dict(rtol=2e-2, atol=1e-3) if optimizer_class.__name__ == "Muon" else {})


def cases_and_starts():
    """Any two of an optimizer, an option and a start are there together. With HVD_ALL_CASES, all three are."""
    seen = set()
    for number, (optimizer_class, options, name) in enumerate((*case.values, case.id) for case in cases()):
        has_all = os.environ.get("HVD_ALL_CASES") or not options or tuple(options) not in seen
        seen.add(tuple(options))
        for start in STARTS if has_all else [STARTS[number % len(STARTS)]]:
            yield pytest.param(optimizer_class, options, start, id=f"{name}-{start.__name__}")


@pytest.mark.parametrize("optimizer_class, options, start", list(cases_and_starts()))
def test_optimizer(equals_one_process, optimizer_class, options, start):
    compare(equals_one_process, optimizer_class, options, start)


@pytest.mark.parametrize("start", [loaded_by_the_root_before_wrapping, trained_before_wrapping],
                         ids=lambda start: start.__name__)
@pytest.mark.parametrize("optimizer_class", classes())
def test_state_that_is_there_before_wrapping(equals_one_process, optimizer_class, start):
    compare(equals_one_process, optimizer_class, {}, start)


def test_groups_with_options_of_their_own(equals_one_process):
    def train(world):
        model = world.network()
        optimizer = world.wrap(torch.optim.AdamW([{"params": model[0].parameters(), "lr": 0.02, "amsgrad": True},
                                                  {"params": model[2].parameters(), "weight_decay": 0.3}]), model)
        trained(model, optimizer, world.batches())
        return model, optimizer

    equals_one_process(train)


def test_options_that_ranks_disagree_on_are_the_roots(equals_one_process):
    def train(world):
        model = world.network()
        factor = 1 + world.rank
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01 * factor, betas=(0.8 / factor, 0.9))
        optimizer = world.wrap(optimizer, model)
        trained(model, optimizer, world.batches())
        return model, optimizer

    equals_one_process(train)


@pytest.mark.parametrize("named", [True, False])
def test_named_and_unnamed(equals_one_process, named):
    def train(world):
        model = world.network()
        optimizer = world.wrap(torch.optim.Adam(model.parameters()), model, named=named)
        trained(model, optimizer, world.batches())
        return model, optimizer

    equals_one_process(train)


def test_a_state_saved_by_ranks_goes_on_in_one_process(equals_one_process):
    """The saved state also has the same entries and types as torch's own."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(torch.optim.Adam(model.parameters()), model)
        trained(model, optimizer, world.batches(STEPS // 2))
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        file.seek(0)
        saved = torch.load(file, weights_only=True)
        alone = torch.optim.Adam(model.parameters())
        alone.load_state_dict(saved)
        trained(model, alone, OneProcess().batches(STEPS // 2))
        return model, alone, saved

    equals_one_process(train)


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
@pytest.mark.parametrize("loaded", ["fresh", "loaded before", "loaded after"])
def test_lbfgs(equals_one_process, line_search, loaded):
    """LBFGS calls the closure many times in one step. The loss that the closure returns decides the next point."""
    def train(world):
        model = world.network()

        def make():
            return torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4, history_size=5,
                                     line_search_fn=line_search)

        def steps(optimizer, batches):
            for x, y in batches:
                def closure():
                    optimizer.zero_grad()
                    value = loss(model(x), y)
                    value.backward()
                    return value
                losses.append(optimizer.step(closure))

        losses = []
        optimizer = make()
        if loaded == "fresh":
            optimizer = world.wrap(optimizer, model)
        else:
            world.begin(model)
            steps(optimizer, OneProcess().batches(3))
            saved, optimizer = optimizer.state_dict(), make()
            if loaded == "loaded before":
                optimizer.load_state_dict(saved)
            optimizer = world.wrap(optimizer, model)
            if loaded == "loaded after":
                optimizer.load_state_dict(saved)
        steps(optimizer, world.batches())
        return model, losses

    equals_one_process(train, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("number", [float, numpy.float64, numpy.longdouble])
def test_lbfgs_with_a_closure_that_returns_a_number(equals_one_process, number):
    def train(world):
        model = world.network()
        optimizer = world.wrap(torch.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe", max_iter=3), model)
        for x, y in world.batches():
            def closure():
                optimizer.zero_grad()
                value = loss(model(x), y)
                value.backward()
                return number(value.item())
            optimizer.step(closure)
        return model

    equals_one_process(train, rtol=1e-5, atol=1e-7)
