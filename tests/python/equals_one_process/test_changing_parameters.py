"""The set of parameters that are trained changes during the training, or differs between ranks."""
import weakref

import pytest
import torch
from training import CLASSES, FEATURES, loss, network

WAYS = pytest.mark.parametrize("way", [{}, dict(groups=2), dict(gradient_views=True)],
                               ids=["plain", "two groups", "shared memory"])

OPTIMIZERS = pytest.mark.parametrize("make", [
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1)], ids=["SGD", "AdamW"])


def step(model, optimizer, batch, output=None):
    x, y = batch
    loss(model(x) if output is None else output, y).backward()
    optimizer.step()


# ---- freezing and thawing ---------------------------------------------------------------------------------------


@WAYS
@OPTIMIZERS
@pytest.mark.parametrize("set_to_none", [True, False])
def test_freezing_in_mid_training(equals_one_process, make, way, set_to_none):
    def train(world):
        model = world.network()
        optimizer = world.wrap(make(model.parameters()), model, **way)
        for index, batch in enumerate(world.batches()):
            optimizer.zero_grad(set_to_none=set_to_none)
            if index == 7:
                model[0].requires_grad_(False)
                if not set_to_none:  # else zeros as gradients would move the parameters, also in one process
                    model[0].weight.grad = model[0].bias.grad = None
            step(model, optimizer, batch)
        return model, optimizer

    equals_one_process(train)


@OPTIMIZERS
def test_frozen_with_a_gradient_that_stays(equals_one_process, make):
    """A frozen parameter keeps its last gradient. Torch applies that gradient in every later step."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(make(model.parameters()), model)
        for index, (x, y) in enumerate(world.batches()):
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.grad = None
            loss(model(x), y).backward()
            optimizer.step()
            if index == 7:
                model[0].requires_grad_(False)
        return model, optimizer

    equals_one_process(train)


@WAYS
@OPTIMIZERS
def test_thawing_in_mid_training(equals_one_process, make, way):
    def train(world):
        model = world.network()
        model[0].requires_grad_(False)
        optimizer = world.wrap(make(model.parameters()), model, **way)
        for index, batch in enumerate(world.batches()):
            if index == 7:
                model[0].requires_grad_(True)
            optimizer.zero_grad()
            step(model, optimizer, batch)
        return model, optimizer

    equals_one_process(train)


@WAYS
@pytest.mark.parametrize("clip", [False, True], ids=["", "clip"])
def test_freezing_and_thawing_by_turns(equals_one_process, clip, way):
    def train(world):
        model = world.network()
        optimizer = world.wrap(torch.optim.Adam(model.parameters(), lr=0.01), model, **way)
        for index, (x, y) in enumerate(world.batches()):
            optimizer.zero_grad()
            model[0].requires_grad_(index % 3 != 0)
            model[2].requires_grad_(index % 3 != 1)
            loss(model(x), y).backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            optimizer.step()
        return model, optimizer

    equals_one_process(train)


# ---- parameter groups -------------------------------------------------------------------------------------------


def train_and_change(world, model, optimizer, changes, output=lambda x: None):
    """`changes`: what is called before the batches with these numbers."""
    for index, batch in enumerate(world.batches()):
        changes.get(index, lambda: None)()
        optimizer.zero_grad()
        model.zero_grad()
        step(model, optimizer, batch, output(batch[0]))


@WAYS
@pytest.mark.parametrize("frozen", [False, True], ids=["trained before by nobody", "thawed"])
@pytest.mark.parametrize("all_named", [True, False], ids=["named", "without a name"])
def test_adding_a_group(equals_one_process, way, frozen, all_named):
    """A group that is added later gets the options that the optimizer was made with."""
    def train(world):
        model = world.network()
        if frozen:
            model[0].requires_grad_(False)
        optimizer = world.wrap(torch.optim.Adam(model[2].parameters(), lr=0.03, betas=(0.8, 0.9), weight_decay=0.1),
                               model if all_named else model[2], **way)
        world.begin(model, optimizer)

        def add():
            model[0].requires_grad_(True)
            optimizer.add_param_group({"params": model[0].parameters()})

        train_and_change(world, model, optimizer, {7: add})
        return model, optimizer

    equals_one_process(train)


def test_a_group_for_a_new_layer(equals_one_process):
    def train(world):
        model = world.network()
        optimizer = world.wrap(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model)
        for index, batch in enumerate(world.batches()):
            if index == 7:
                head = world.network(torch.nn.Linear, CLASSES, CLASSES)
                world.begin(head)
                model.append(head)
                optimizer.add_param_group({"params": head.parameters(), "lr": 0.5})
            optimizer.zero_grad()
            step(model, optimizer, batch)
        return model, optimizer

    equals_one_process(train)


def test_a_group_that_is_taken_away(equals_one_process):
    def train(world):
        model = world.network()
        optimizer = world.wrap(torch.optim.SGD([{"params": model[0].parameters()}, {"params": model[2].parameters()}],
                                               lr=0.1, momentum=0.9), model)
        train_and_change(world, model, optimizer, {7: lambda: optimizer.param_groups.pop(0)})
        return model, optimizer

    equals_one_process(train)


def test_parameters_of_a_group_that_are_frozen_and_taken_away(equals_one_process):
    """The clipping completes the round, with the parameters that the step finds to be taken away."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(torch.optim.SGD([{"params": model[0].parameters()}, {"params": model[2].parameters()}],
                                               lr=0.1, momentum=0.9), model, groups=1)
        for index, (x, y) in enumerate(world.batches()):
            optimizer.zero_grad()
            if index == 7:
                del optimizer.param_groups[0]
                model[0].requires_grad_(False)
                model[0].zero_grad()
            loss(model(x), y).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        return model, optimizer

    equals_one_process(train)


def test_a_group_added_when_one_rank_has_used_gradients_of_the_step(equals_one_process):
    """That rank has reported which gradients it has of the parameters before; the others have not."""
    def train(world):
        model = world.network()
        model.append(world.network(torch.nn.Linear, CLASSES, CLASSES))
        optimizer = world.wrap(torch.optim.SGD(model[:-1].parameters(), lr=0.1, momentum=0.9), model)
        for index, (x, y) in enumerate(world.batches()):
            loss(model(x), y).backward()
            if world.rank == 0:
                model[0].weight.grad.norm().item()
            if index == 7:
                optimizer.add_param_group({"params": model[-1].parameters()})
            if index < 7:
                model[-1].zero_grad()
            optimizer.step()
            optimizer.zero_grad()
        return model, optimizer

    equals_one_process(train)


@pytest.mark.parametrize("named", [True, False])
def test_groups_taken_away_and_added(equals_one_process, named):
    """What joins may come to a place where another parameter was before."""
    def train(world):
        model = world.network(torch.nn.ModuleList, [torch.nn.Linear(FEATURES, CLASSES) for _ in range(4)])
        optimizer = world.wrap(torch.optim.SGD([{"params": layer.parameters()} for layer in model[:2]], lr=0.1,
                                               momentum=0.9), model[:2], named=named)
        world.begin(model)

        def replace_first_group_by(layer):
            del optimizer.param_groups[0]
            optimizer.add_param_group({"params": layer.parameters()})

        train_and_change(world, model, optimizer,
                         {5: lambda: replace_first_group_by(model[2]), 10: lambda: replace_first_group_by(model[3])},
                         lambda x: sum(layer(x) for layer in model))
        return model, optimizer

    equals_one_process(train)


@pytest.mark.parametrize("named", [True, False])
def test_two_optimizers_that_get_a_group_each(equals_one_process, named):
    def train(world):
        model = world.network(torch.nn.ModuleList, [torch.nn.Linear(FEATURES, CLASSES) for _ in range(4)])
        optimizers = [world.wrap(torch.optim.SGD(model[i:i + 1].parameters(), lr=0.1, momentum=0.9), model[i:i + 1],
                                 named=named) for i in range(2)]
        world.begin(model)
        for index, (x, y) in enumerate(world.batches()):
            if index == 5:
                for i, optimizer in enumerate(optimizers):
                    optimizer.add_param_group({"params": model[2 + i].parameters()})
            for optimizer in optimizers:
                optimizer.zero_grad()
            model.zero_grad()
            loss(sum(layer(x) for layer in model), y).backward()
            for optimizer in optimizers:
                optimizer.step()
        return model, optimizers

    equals_one_process(train)


@WAYS
def test_parameters_that_were_replaced_are_freed(equals_one_process, way):
    def train(world):
        model = world.network()
        optimizer = world.wrap(torch.optim.Adam(model.parameters(), lr=0.01), model, **way)
        olds = []
        for batch in world.batches(6):
            optimizer.zero_grad()
            step(model, optimizer, batch)
            old, group = model[2].weight, optimizer.param_groups[0]
            olds.append(weakref.ref(old))
            model[2].weight = new = torch.nn.Parameter(old.detach().clone())
            group["params"] = [new if parameter is old else parameter for parameter in group["params"]]
            optimizer.state[new] = optimizer.state.pop(old)
            del old, new
        optimizer.zero_grad()
        step(model, optimizer, batch)
        return model, optimizer, sum(old() is not None for old in olds)

    equals_one_process(train)


@WAYS
def test_a_parameter_that_gets_another_shape(equals_one_process, way):
    """An embedding is made larger by its data."""
    def train(world):
        model = world.network(torch.nn.Linear, FEATURES, CLASSES)
        optimizer = world.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model, **way)
        for index, (x, y) in enumerate(world.batches()):
            if index in (7, 12):
                model.weight.data = torch.cat([model.weight.data, torch.zeros(2, FEATURES)])
                model.bias.data = torch.cat([model.bias.data, torch.zeros(2)])
                model.weight.grad = model.bias.grad = None
            optimizer.zero_grad()
            step(model, optimizer, (x, y))
        return model, optimizer

    equals_one_process(train)


class StepsInThePrecisionOfGradients(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is not None:
                assert parameter.grad.dtype == torch.float64
                parameter.sub_((parameter.grad * 0.125).to(parameter.dtype))


@WAYS
@pytest.mark.parametrize("used", ["by all", "by one rank"])
@pytest.mark.skipif(not hasattr(torch.Tensor, "grad_dtype"), reason="torch has no grad_dtype before 2.10")
def test_gradients_of_another_type_than_the_parameters(equals_one_process, used, way):
    def train(world):
        model = world.network(torch.nn.Linear, FEATURES, CLASSES).to(torch.bfloat16)
        for parameter in model.parameters():
            parameter.grad_dtype = torch.float64
        optimizer = world.wrap(StepsInThePrecisionOfGradients(model.parameters()), model, **way)
        for x, y in world.batches():
            optimizer.zero_grad()
            losses = [loss(torch.nn.functional.linear(part, model.weight.double(), model.bias.double()), wanted)
                      for rank, part, wanted in world.parts(x, y) if used == "by all" or rank == 1]
            if losses:
                (sum(losses) / (world.ranks if not world.distributed else 1)).backward()
            optimizer.step()
        return model, [parameter.float() for parameter in model.parameters()]

    equals_one_process(train, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("clip", [False, True], ids=["", "clip"])
def test_a_parameter_that_is_put_in_the_place_of_another(equals_one_process, clip):
    """Libraries do this when they prune a layer or resize an embedding."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(torch.optim.Adam(model.parameters(), lr=0.01), model)
        for index, batch in enumerate(world.batches()):
            if index == 7:
                old = model[2].weight
                model[2].weight = new = torch.nn.Parameter(old.detach() * 0.5)
                group = optimizer.param_groups[0]
                group["params"] = [new if parameter is old else parameter for parameter in group["params"]]
                optimizer.state[new] = optimizer.state.pop(old)
            optimizer.zero_grad()
            loss(model(batch[0]), batch[1]).backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            optimizer.step()
        return model, optimizer

    equals_one_process(train)


@pytest.mark.fails_on_purpose
def test_a_parameter_that_joins_unseen_before_gradients_are_clipped(equals_one_process):
    """The optimizer finds it in the step. Until then its gradient is this rank's own, and so is the norm over all."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
        for index, (x, y) in enumerate(world.batches(5)):
            if index == 2:
                model[2].weight = torch.nn.Parameter(model[2].weight.detach() * 0.5)
                optimizer.param_groups[0]["params"] = list(model.parameters())
            loss(model(x), y).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            optimizer.step()
            optimizer.zero_grad()
        return model

    with pytest.raises(AssertionError, match=r"joined the optimizer since.* Call optimizer.synchronize\(\)"):
        equals_one_process(train)


def test_parameters_whose_values_are_replaced(equals_one_process):
    """The script assigns parameter.data, as model.to() does."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
        for index, batch in enumerate(world.batches()):
            if index == 7:
                for parameter in model.parameters():
                    parameter.data = parameter.data.clone()
            if index == 12:
                model.float()
                model.double()
            optimizer.zero_grad()
            step(model, optimizer, batch)
        return model, optimizer

    equals_one_process(train)


def test_parameters_that_get_their_shape_after_wrapping(equals_one_process):
    """Parameters of lazy modules get their shape from the first batch. Each rank then has its own values, until the
    broadcast makes them equal."""
    def train(world):
        model = torch.nn.Sequential(torch.nn.LazyLinear(5), torch.nn.Tanh(), torch.nn.LazyLinear(CLASSES))
        optimizer = world.wrap(torch.optim.Adam(model.parameters(), lr=0.01), model, begin=False)
        torch.manual_seed(17 + world.rank)
        for index, batch in enumerate(world.batches()):
            optimizer.zero_grad()
            if index == 0:
                model(batch[0])
                world.begin(model, optimizer)
            step(model, optimizer, batch)
        return model, optimizer

    equals_one_process(train)


# ---- unused parameters ------------------------------------------------------------------------------------------


class Branches(torch.nn.Module):
    """Several networks; the test chooses the one through which rows go."""

    def __init__(self, branches=2):
        super().__init__()
        self.branches = torch.nn.ModuleList(network() for _ in range(branches))


@WAYS
@OPTIMIZERS
@pytest.mark.parametrize("set_to_none", [True, False])
def test_unused_on_all_ranks(equals_one_process, make, set_to_none, way):
    """A branch without a gradient is not stepped, not even by weight decay: one in steps 5 to 11, another in all
    steps."""
    def train(world):
        model = world.network(Branches, 3)
        optimizer = world.wrap(make(model.parameters()), model, **way)
        for index, batch in enumerate(world.batches()):
            optimizer.zero_grad(set_to_none=set_to_none)
            step(model, optimizer, batch, model.branches[5 <= index < 12](batch[0]))
        assert model.branches[2][0].weight.grad is None
        return model, optimizer

    equals_one_process(train)


@pytest.mark.parametrize("touch", ["clip", "zero in place", "value"])
def test_unused_in_the_first_steps(equals_one_process, touch):
    """broadcast_optimizer_state shows zero gradients. They stay zero when the program changes all gradients."""
    def train(world):
        model = world.network()
        model.append(torch.nn.Linear(CLASSES, CLASSES))
        optimizer = world.wrap(torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1), model)
        for index, (x, y) in enumerate(world.batches()):
            if touch == "zero in place":
                model.zero_grad(set_to_none=False)
            loss(model(x) if index > 2 else model[:-1](x), y).backward()
            if touch == "clip":
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            elif touch == "value":
                torch.nn.utils.clip_grad_value_(model.parameters(), 0.02)
            optimizer.step()
            optimizer.zero_grad()
        return model, optimizer

    equals_one_process(train)


def test_an_optimizer_that_is_unused_in_the_first_steps(equals_one_process):
    """The script adds weight decay to the gradients that it finds. The zeros that are shown are none of these."""
    def train(world):
        model = world.network()
        model.append(torch.nn.Linear(CLASSES, CLASSES))
        optimizers = [world.wrap(torch.optim.SGD(part.parameters(), lr=0.1, momentum=0.9), part)
                      for part in (model[:-1], model[-1])]
        for index, (x, y) in enumerate(world.batches()):
            model.zero_grad(set_to_none=False)
            loss(model(x) if index > 2 else model[:-1](x), y).backward()
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad.add_(parameter.detach(), alpha=0.1)
            for optimizer in optimizers:
                optimizer.step()
        return model, optimizers

    equals_one_process(train)


@WAYS
@OPTIMIZERS
@pytest.mark.parametrize("clip", [False, True], ids=["", "after synchronize and clip"])
def test_used_on_one_rank_only(equals_one_process, make, clip, way):
    """The two halves of a batch go through different branches, which change places every three steps. The gradient of a
    branch is averaged with zeros for the rank that did not use it."""
    def train(world):
        model = world.network(Branches)
        optimizer = world.wrap(make(model.parameters()), model, **way)
        for index, (x, y) in enumerate(world.batches()):
            optimizer.zero_grad()
            outputs = [model.branches[(rank + index // 3) % 2](part) for rank, part, _ in world.parts(x, y)]
            loss(torch.cat(outputs), y).backward()
            if clip:
                world.synchronize(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
                with world.skip_synchronize(optimizer):
                    optimizer.step()
            else:
                optimizer.step()
        return model, optimizer

    equals_one_process(train)


@pytest.mark.fails_on_purpose
def test_used_on_one_rank_only_and_clipped_at_once(equals_one_process, monkeypatch):
    """A rank without all gradients clips by another norm than the other ranks. The test accepts right numbers or an
    error that names synchronize(), but no hang."""
    monkeypatch.setattr("horovod.torch.gradients.PATIENCE_SECONDS", 0.1)

    def train(world):
        model = world.network(Branches)
        optimizer = world.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
        for x, y in world.batches(3):
            optimizer.zero_grad()
            output = torch.cat([model.branches[rank % 2](part) for rank, part, _ in world.parts(x, y)])
            loss(output, y).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            optimizer.step()
        return model

    try:
        equals_one_process(train)
    except AssertionError as error:
        assert "synchronize()" in str(error)


def test_a_rank_whose_batch_has_nothing_to_learn(equals_one_process):
    """In some steps one of the ranks does no backward pass at all."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(torch.optim.Adam(model.parameters(), lr=0.01), model)
        for index, (x, y) in enumerate(world.batches()):
            optimizer.zero_grad()
            parts = world.parts(x, y)
            losses = [loss(model(part), wanted) for rank, part, wanted in parts if (index + rank) % 3]
            if losses:
                (sum(losses) / len(parts)).backward()
            optimizer.step()
        return model, optimizer

    equals_one_process(train)


@WAYS
def test_layers_that_are_left_out_by_chance(equals_one_process, way):
    """Stochastic depth: all ranks leave out the same layers, because they draw from equal generators."""
    def train(world):
        model = world.network(torch.nn.ModuleList, [torch.nn.Linear(FEATURES, FEATURES) for _ in range(4)])
        model.append(world.network(torch.nn.Linear, FEATURES, CLASSES))
        optimizer = world.wrap(torch.optim.AdamW(model.parameters(), lr=0.01), model, **way)
        chance = torch.Generator().manual_seed(8)
        for x, y in world.batches():
            optimizer.zero_grad()
            for layer in model[:4]:
                if torch.rand((), generator=chance) < 0.6:
                    x = x + torch.tanh(layer(x))
            loss(model[4](x), y).backward()
            optimizer.step()
        return model, optimizer

    equals_one_process(train)


# ---- one parameter in two places --------------------------------------------------------------------------------


@WAYS
def test_tied_weights(equals_one_process, way):
    def train(world):
        model = world.network(lambda: torch.nn.Sequential(torch.nn.Linear(FEATURES, FEATURES), torch.nn.Tanh(),
                                                          torch.nn.Linear(FEATURES, FEATURES)))
        model[2].weight = model[0].weight
        optimizer = world.wrap(torch.optim.Adam(model.parameters(), lr=0.01), model, **way)
        for batch in world.batches():
            optimizer.zero_grad()
            step(model, optimizer, batch)
        return model, optimizer

    equals_one_process(train)


def test_two_optimizers_of_one_parameter(equals_one_process):
    """Each of the two optimizers makes its step with the averaged gradient."""
    def train(world):
        model = world.network()
        world.begin(model)
        optimizers = [world.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model),
                      world.wrap(torch.optim.SGD(model[2].parameters(), lr=0.05, momentum=0.9), model[2])]
        for x, y in world.batches():
            model.zero_grad()
            loss(model(x), y).backward()
            for optimizer in optimizers:
                optimizer.step()
        return model, optimizers

    equals_one_process(train)
