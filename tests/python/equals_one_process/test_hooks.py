"""The user's own hooks on parameters, gradients and steps, registered before or after wrapping."""
import pytest
import torch
from training import loss

WHEN = pytest.mark.parametrize("when", ["before wrapping", "after wrapping"])


def train_with(equals_one_process, when, register, make=lambda model: torch.optim.Adam(model.parameters(), lr=0.01)):
    """Trains and compares with one process. register(model, optimizer) returns further values to compare."""
    def train(world):
        model = world.network()
        optimizer = make(model)
        if when == "before wrapping":
            result = register(model, optimizer)
        optimizer = world.wrap(optimizer, model)
        if when == "after wrapping":
            result = register(model, optimizer)
        for x, y in world.batches():
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
        return model, optimizer, result

    equals_one_process(train)


@WHEN
def test_on_a_tensors_gradient(equals_one_process, when):
    def register(model, optimizer):
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient: gradient * 0.5)

    train_with(equals_one_process, when, register)


@WHEN
def test_on_an_accumulated_gradient(equals_one_process, when):
    def register(model, optimizer):
        def halve(parameter):
            parameter.grad.mul_(0.5)

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(halve)

    train_with(equals_one_process, when, register)


def test_a_hook_that_clips_what_all_ranks_gave(equals_one_process):
    """The hook sees the average, because it is registered after wrapping."""
    def register(model, optimizer):
        def clip(parameter):
            parameter.grad.clamp_(-0.01, 0.01)

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(clip)

    train_with(equals_one_process, "after wrapping", register)


@WHEN
def test_before_a_step(equals_one_process, when):
    """A hook before a step sees the averaged gradients, and the step uses the gradients that the hook changed."""
    def register(model, optimizer):
        seen = []

        def clip(*_):
            seen.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05))

        optimizer.register_step_pre_hook(clip)
        return seen

    train_with(equals_one_process, when, register)


@WHEN
def test_after_a_step(equals_one_process, when):
    """A hook after a step, which applies a constraint to the parameters."""
    def register(model, optimizer):
        calls = []

        def normalise(*_):
            calls.append(1)
            with torch.no_grad():
                model[0].weight /= model[0].weight.norm()

        optimizer.register_step_post_hook(normalise)
        return calls

    train_with(equals_one_process, when, register)


@WHEN
def test_of_all_optimizers(equals_one_process, when):
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
    handles = []

    def register(model, optimizer):
        calls = []
        for register_hook in (register_optimizer_step_pre_hook, register_optimizer_step_post_hook):
            handles.append(register_hook(lambda *_: calls.append(float(model[0].weight.grad.sum()))))
        return calls

    try:
        train_with(equals_one_process, when, register)
    finally:
        for handle in handles:
            handle.remove()


@WHEN
def test_of_state_dicts(equals_one_process, when):
    def train(world):
        model = world.network()
        optimizer = torch.optim.Adam(model.parameters())
        calls = []

        def register(optimizer):
            optimizer.register_state_dict_pre_hook(lambda *_: calls.append("before save"))
            optimizer.register_state_dict_post_hook(lambda _, saved: {**saved, "more": 17})
            optimizer.register_load_state_dict_pre_hook(lambda _, saved: calls.append(saved.pop("more")))
            optimizer.register_load_state_dict_post_hook(lambda _: calls.append("after load"))

        if when == "before wrapping":
            register(optimizer)
        optimizer = world.wrap(optimizer, model, begin=False)
        if when == "after wrapping":
            register(optimizer)
        optimizer.load_state_dict(optimizer.state_dict())
        world.begin(model, None)
        return model, calls[:3]

    equals_one_process(train)


def test_a_hook_is_taken_away(equals_one_process):
    def train(world):
        model = world.network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        calls = []
        handle = optimizer.register_step_pre_hook(lambda *_: calls.append(1))
        optimizer = world.wrap(optimizer, model)
        for step, (x, y) in enumerate(world.batches()):
            if step == 5:
                handle.remove()
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
        return model, calls

    equals_one_process(train)


def test_a_step_in_the_backward_pass(equals_one_process):
    """Each parameter has an optimizer, which makes its step during the backward pass, as soon as the gradient
    exists."""
    def train(world):
        model = world.network()
        world.begin(model)
        optimizers = {}
        for name, parameter in model.named_parameters():
            optimizer = torch.optim.Adam([parameter], lr=0.01)
            if world.distributed:
                optimizer = world.hvd.DistributedOptimizer(optimizer, [(name, parameter)],
                                                           process_set=world.process_set)
            optimizers[parameter] = optimizer

        def step(parameter):
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(step)
        for x, y in world.batches():
            loss(model(x), y).backward()
        return model, list(optimizers.values())

    equals_one_process(train)
