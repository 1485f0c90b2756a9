"""Gradients that a script reads or changes between backward() and step()."""
import pytest
import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from training import FEATURES, kind_of_device, loss

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "fused Adam": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
}

WAYS = {"plain": {}, "two groups": dict(groups=2), "shared memory": dict(gradient_views=True),
        "predivided": dict(gradient_predivide_factor=2.0)}


def scaled_by_a_number(model):
    for parameter in model.parameters():
        parameter.grad.mul_(0.5)


def scaled_by_data(model):
    for parameter in model.parameters():
        parameter.grad.data *= 0.5


def replaced(model):
    for parameter in model.parameters():
        parameter.grad = parameter.grad.sign() * 0.1


def norm_by_hand(model):
    total = sum(parameter.grad.norm() ** 2 for parameter in model.parameters()) ** 0.5
    for parameter in model.parameters():
        parameter.grad.div_(total + 1e-6)


def noise_added(model):
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        parameter.grad.add_(torch.randn(parameter.shape, generator=generator), alpha=0.01)


def by_views(model):
    """Changes the gradient through a view of a view."""
    for parameter in model.parameters():
        parameter.grad.view(-1)[::2].clamp_(-0.01, 0.01)


def through_one_vector(model):
    flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    flat /= flat.norm()
    torch.nn.utils.vector_to_parameters(flat, [parameter.grad for parameter in model.parameters()])


CHANGES = {
    "clip_grad_norm_": lambda model: clip_grad_norm_(model.parameters(), 0.05),
    "clip_grad_norm_ foreach": lambda model: clip_grad_norm_(model.parameters(), 0.05, foreach=True),
    "clip_grad_norm_ no foreach": lambda model: clip_grad_norm_(model.parameters(), 0.05, foreach=False),
    "clip_grad_norm_ inf": lambda model: clip_grad_norm_(model.parameters(), 0.05, norm_type=float("inf")),
    "clip_grad_norm_ by layer": lambda model: [clip_grad_norm_(layer.parameters(), 0.05) for layer in model
                                               if list(layer.parameters())],
    "clip_grad_value_ foreach": lambda model: clip_grad_value_(model.parameters(), 0.01, foreach=True),
    "clip_grad_value_ no foreach": lambda model: clip_grad_value_(model.parameters(), 0.01, foreach=False),
    "foreach": lambda model: torch._foreach_mul_([parameter.grad for parameter in model.parameters()], 0.5),
}
for change in (scaled_by_a_number, scaled_by_data, replaced, norm_by_hand, noise_added, by_views, through_one_vector):
    CHANGES[change.__name__] = change


def loop(world, change, make=OPTIMIZERS["SGD"], synchronized=False, **options):
    model = world.network()
    optimizer = world.wrap(make(model.parameters()), model, **options)
    for x, y in world.batches():
        optimizer.zero_grad()
        loss(model(x), y).backward()
        if synchronized:
            world.synchronize(optimizer)
        change(model)
        if synchronized:
            with world.skip_synchronize(optimizer):
                optimizer.step()
        else:
            optimizer.step()
    return model, optimizer


@pytest.mark.parametrize("synchronized", [False, True], ids=["at once", "after synchronize"])
@pytest.mark.parametrize("change", CHANGES)
def test_gradients_changed_before_the_step(equals_one_process, change, synchronized):
    equals_one_process(lambda world: loop(world, CHANGES[change], synchronized=synchronized))


@pytest.mark.parametrize("synchronized", [False, True], ids=["at once", "after synchronize"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("optimizer", ["Adam", "fused Adam"])
def test_clipping(equals_one_process, optimizer, way, synchronized):
    equals_one_process(lambda world: loop(world, CHANGES["clip_grad_norm_"], OPTIMIZERS[optimizer], synchronized,
                                          **WAYS[way]))


def test_clipping_of_some_parameters(equals_one_process):
    """Gradients that the script does not touch stay in flight until the step."""
    equals_one_process(lambda world: loop(world, lambda model: clip_grad_norm_(model[2].weight, 0.01)))


def test_the_norm_is_that_of_the_whole_batch(equals_one_process):
    norms = []

    def train(world):
        norms.clear()
        model = loop(world, lambda model: norms.append(clip_grad_norm_(model.parameters(), 0.05)))
        return model, list(norms)

    equals_one_process(train)


def test_gradients_read_for_a_log(equals_one_process):
    """Every rank reads its gradients, as for a log file of its own."""
    seen = []

    def train(world):
        seen.clear()
        model = loop(world, lambda model: seen.append({name: float(parameter.grad.abs().mean())
                                                       for name, parameter in model.named_parameters()}))
        return model, list(seen)

    equals_one_process(train)


def test_a_step_that_is_left_out(equals_one_process):
    """Some loops leave out a step if the norm is too large. The next backward pass begins anew."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(torch.optim.Adam(model.parameters()), model)
        taken = 0
        for x, y in world.batches():
            optimizer.zero_grad()
            loss(model(x), y).backward()
            if clip_grad_norm_(model.parameters(), 1.0) < 0.5:
                optimizer.step()
                taken += 1
        assert 3 < taken < 17, taken
        return model, optimizer

    equals_one_process(train)


# ---- GradScaler and autocast ------------------------------------------------------------------------------------


@pytest.fixture
def single():
    """Makes float32 the default type, because autocast does not convert doubles."""
    torch.set_default_dtype(torch.float32)


def scaled_loop(world, make, clip=False, infinite_at=None, synchronized=False, **options):
    model = world.network()
    optimizer = world.wrap(make(model.parameters()), model, **options)
    scaler = torch.amp.GradScaler(kind_of_device(), init_scale=2.0 ** 10, growth_interval=6)
    scales = []
    for step, (x, y) in enumerate(world.batches()):
        optimizer.zero_grad()
        value = loss(model(x), y)
        if step == infinite_at and world.rank == 0:
            value = value * torch.inf  # only rank 0 has infinite values, and all ranks leave this step out
        scaler.scale(value).backward()
        if synchronized:
            world.synchronize(optimizer)
        if clip:
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 0.05)
        if synchronized:
            with world.skip_synchronize(optimizer):
                scaler.step(optimizer)
        else:
            scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return model, optimizer, scales


@pytest.mark.parametrize("synchronized", [False, True], ids=["at once", "after synchronize"])
@pytest.mark.parametrize("infinite_at", [None, 0, 7], ids=["finite", "first infinite", "one infinite"])
@pytest.mark.parametrize("clip", [False, True], ids=["", "unscale_ and clip"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_grad_scaler(equals_one_process, optimizer, clip, infinite_at, synchronized):
    equals_one_process(lambda world: scaled_loop(world, OPTIMIZERS[optimizer], clip, infinite_at, synchronized))


@pytest.mark.parametrize("infinite_at", [None, 7], ids=["finite", "one infinite"])
@pytest.mark.parametrize("way", [way for way in WAYS if way != "plain"])
def test_grad_scaler_and_ways_of_sending(equals_one_process, way, infinite_at):
    equals_one_process(lambda world: scaled_loop(world, OPTIMIZERS["SGD"], True, infinite_at, **WAYS[way]))


@pytest.mark.parametrize("scaler", [False, True], ids=["", "GradScaler"])
@pytest.mark.parametrize("clip", [False, True], ids=["", "clip"])
def test_autocast(equals_one_process, single, clip, scaler):
    """One process computes the ranks' parts one after the other, because a sum in bfloat16 depends on where it is
    rounded."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(torch.optim.Adam(model.parameters(), lr=0.01), model)
        scale = torch.amp.GradScaler(kind_of_device(), enabled=scaler)
        for x, y in world.batches():
            optimizer.zero_grad()
            parts = world.parts(x, y)
            for _, part, wanted in parts:
                with torch.autocast(kind_of_device(), torch.bfloat16):
                    value = loss(model(part), wanted) / len(parts)
                scale.scale(value).backward()
            if clip:
                scale.unscale_(optimizer)
                clip_grad_norm_(model.parameters(), 0.05)
            scale.step(optimizer)
            scale.update()
        return model, optimizer

    equals_one_process(train, rtol=1e-3, atol=1e-4)


def test_two_optimizers_and_one_scaler(equals_one_process):
    def train(world):
        models = [world.network(), world.network(torch.nn.Linear, FEATURES, 3)]
        optimizers = [world.wrap(make(model.parameters()), model, named=False)
                      for make, model in zip((OPTIMIZERS["SGD"], OPTIMIZERS["Adam"]), models)]
        scaler = torch.amp.GradScaler(kind_of_device(), init_scale=8.0)
        for x, y in world.batches():
            for optimizer in optimizers:
                optimizer.zero_grad()
            scaler.scale(loss(models[0](x) + models[1](x), y)).backward()
            scaler.unscale_(optimizers[0])
            clip_grad_norm_(models[0].parameters(), 0.05)
            for optimizer in optimizers:
                scaler.step(optimizer)
            scaler.update()
        return models, optimizers

    equals_one_process(train)


def test_a_second_step_with_clipped_sums(equals_one_process):
    def train(world):
        model = world.network()
        options = dict(op=world.hvd.Sum) if world.distributed else {}
        optimizer = world.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model, **options)
        for x, y in world.batches(5):
            optimizer.zero_grad()
            loss(model(x), y, reduction="sum").backward()
            world.synchronize(optimizer)
            clip_grad_norm_(model.parameters(), 0.3)
            with world.skip_synchronize(optimizer):
                optimizer.step()
            optimizer.step()
        return model, optimizer

    equals_one_process(train)
