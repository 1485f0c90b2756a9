"""Models that do more than one forward pass through plain parameters, and scripts with several models or optimizers."""
import pytest
import torch
from torch.nn.utils import parametrizations
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from training import CLASSES, FEATURES, loss, network

WAYS = pytest.mark.parametrize("way", [{}, dict(groups=2), dict(gradient_views=True)],
                               ids=["plain", "two groups", "shared memory"])


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


def loop(world, model, optimizer, forward=None, after_step=lambda: None, steps=20):
    for x, y in world.batches(steps):
        optimizer.zero_grad()
        loss((forward or model)(x), y).backward()
        optimizer.step()
        after_step()


# ---- activation checkpointing -----------------------------------------------------------------------------------


@WAYS
@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
def test_activation_checkpointing(equals_one_process, reentrant, way):
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model, **way)
        loop(world, model, optimizer,
             lambda x: model[2](checkpoint(model[:2], x.requires_grad_(), use_reentrant=reentrant)))
        return model, optimizer

    equals_one_process(train)


@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
def test_checkpointing_in_segments(equals_one_process, reentrant):
    def train(world):
        model = world.network()
        optimizer = world.wrap(adam(model), model)
        loop(world, model, optimizer,
             lambda x: checkpoint_sequential(model, 2, x.requires_grad_(), use_reentrant=reentrant))
        return model, optimizer

    equals_one_process(train)


def test_a_layer_that_is_checkpointed_twice(equals_one_process):
    def train(world):
        model = world.network(torch.nn.Linear, FEATURES, FEATURES)
        optimizer = world.wrap(adam(model), model)
        loop(world, model, optimizer,
             lambda x: checkpoint(model, checkpoint(model, x, use_reentrant=False).tanh(), use_reentrant=False))
        return model, optimizer

    equals_one_process(train)


def test_a_layer_that_is_checkpointed_twice_reentrantly(equals_one_process):
    """The gradient accumulates twice in one backward pass; backward_passes_per_step=2 tells it."""
    def train(world):
        model = world.network(torch.nn.Linear, FEATURES, FEATURES)
        optimizer = world.wrap(adam(model), model, backward_passes_per_step=2)
        loop(world, model, optimizer, lambda x: checkpoint(
            model, checkpoint(model, x.requires_grad_(), use_reentrant=True).tanh(), use_reentrant=True))
        return model, optimizer

    equals_one_process(train)


# ---- parametrisations and buffers -------------------------------------------------------------------------------

PARAMETRISATIONS = {
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "orthogonal by Cayley": lambda layer: parametrizations.orthogonal(layer, orthogonal_map="cayley"),
}


@pytest.mark.parametrize("kind", PARAMETRISATIONS)
@pytest.mark.parametrize("applied", ["before wrapping", "before making the optimizer, in place"])
def test_parametrisation(equals_one_process, kind, applied):
    def make():
        model = network()
        PARAMETRISATIONS[kind](model[0])
        if applied != "before wrapping":
            PARAMETRISATIONS["weight_norm"](model[2])
        return model

    def train(world):
        model = world.network(make)
        optimizer = world.wrap(adam(model), model)
        loop(world, model, optimizer)
        return model, optimizer

    equals_one_process(train)


def test_normalised_batches(equals_one_process):
    """BatchNorm (not SyncBatchNorm) uses the means of each rank's part. Therefore one process computes part by part."""
    def train(world):
        model = world.network(lambda: torch.nn.Sequential(
            torch.nn.Linear(FEATURES, 5), torch.nn.BatchNorm1d(5, track_running_stats=False),
            torch.nn.Linear(5, CLASSES)))
        optimizer = world.wrap(adam(model), model)
        loop(world, model, optimizer, lambda x: torch.cat([model(part) for _, part, _ in world.parts(x, x)]))
        return model, optimizer

    equals_one_process(train)


# ---- averages of models -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", ["before wrapping", "after wrapping"])
@pytest.mark.parametrize("kind", ["EMA", "SWA"])
def test_averaged_model(equals_one_process, kind, made):
    def train(world):
        def average():
            return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9)) if kind == "EMA" else \
                AveragedModel(model)

        model = world.network()
        world.begin(model)
        averaged = average() if made == "before wrapping" else None
        optimizer = world.wrap(adam(model), model)
        averaged = averaged or average()
        loop(world, model, optimizer, after_step=lambda: averaged.update_parameters(model))
        update_bn([torch.ones(2, FEATURES)], averaged)
        return model, optimizer, averaged

    equals_one_process(train)


def test_a_teacher_that_follows(equals_one_process):
    """A teacher network, whose parameters follow those of the student. The model contains them, but they get no
    gradients."""
    def train(world):
        model = world.network(lambda: torch.nn.ModuleList([network(), network()]))
        world.begin(model)
        student, teacher = model
        teacher.load_state_dict(student.state_dict())
        teacher.requires_grad_(False)
        optimizer = world.wrap(adam(model), model)
        for x, y in world.batches():
            optimizer.zero_grad()
            (loss(student(x), y) + (student(x) - teacher(x + 0.1)).square().mean()).backward()
            optimizer.step()
            with torch.no_grad():
                torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 0.1)
        return model, optimizer

    equals_one_process(train)


# ---- several optimizers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("clip", [False, True], ids=["", "clip"])
def test_two_optimizers_on_one_graph(equals_one_process, named, clip):
    def train(world):
        model = world.network()
        optimizers = [world.wrap(torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9), model, named=named),
                      world.wrap(torch.optim.Adam(model[2].parameters(), lr=0.01), model, named=named)]
        for x, y in world.batches():
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss(model(x), y).backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            for optimizer in optimizers:
                optimizer.step()
        return model, optimizers

    equals_one_process(train)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("wrapped", ["of different networks", "of equal networks"])
def test_gan(equals_one_process, named, wrapped):
    """The generator's loss goes through the discriminator, which is frozen during that backward pass."""
    def train(world):
        generator = world.network()
        discriminator = world.network() if wrapped == "of equal networks" else \
            world.network(torch.nn.Linear, CLASSES, 1)
        models = generator, discriminator
        optimizers = [world.wrap(adam(model), model, named=named) for model in models]

        def judged(samples):
            if wrapped == "of equal networks":
                samples = torch.nn.functional.pad(samples, (0, FEATURES - CLASSES))
            return discriminator(samples)[:, 0]

        criterion = torch.nn.functional.binary_cross_entropy_with_logits
        for x, _ in world.batches():
            optimizers[1].zero_grad()
            real, fake = judged(x[:, :CLASSES]), judged(generator(x).detach())
            (criterion(real, torch.ones_like(real)) + criterion(fake, torch.zeros_like(fake))).backward()
            optimizers[1].step()

            optimizers[0].zero_grad()
            discriminator.requires_grad_(False)
            fake = judged(generator(x))
            criterion(fake, torch.ones_like(fake)).backward()
            optimizers[0].step()
            discriminator.requires_grad_(True)
        return models, optimizers

    equals_one_process(train)


@pytest.mark.parametrize("losses", ["two backward passes", "one loss"])
def test_gan_of_the_tutorial(equals_one_process, losses):
    """The discriminator learns from a real and a fake batch. It is not frozen while the generator learns."""
    def train(world):
        generator, discriminator = world.network(), world.network(torch.nn.Linear, CLASSES, 1)
        passes = 2 if losses == "two backward passes" else 1
        of_generator = world.wrap(adam(generator), generator)
        of_discriminator = world.wrap(adam(discriminator), discriminator, backward_passes_per_step=passes)
        criterion = torch.nn.functional.binary_cross_entropy_with_logits
        for x, _ in world.batches():
            discriminator.zero_grad()
            real = discriminator(x[:, :CLASSES])
            value = criterion(real, torch.ones_like(real))
            if losses == "two backward passes":
                value.backward()
                value = 0
            samples = generator(x)
            fake = discriminator(samples.detach())
            (value + criterion(fake, torch.zeros_like(fake))).backward()
            of_discriminator.step()

            generator.zero_grad()
            fake = discriminator(samples)
            criterion(fake, torch.ones_like(fake)).backward()
            of_generator.step()
        return [generator, discriminator], [of_generator, of_discriminator]

    equals_one_process(train)


def test_one_optimizer_of_two_models(equals_one_process):
    def train(world):
        encoder, decoder = world.network(), world.network(torch.nn.Linear, CLASSES, FEATURES)
        both = torch.nn.ModuleDict({"encoder": encoder, "decoder": decoder})
        optimizer = world.wrap(torch.optim.Adam([*encoder.parameters(), *decoder.parameters()]), both)
        for x, _ in world.batches():
            optimizer.zero_grad()
            (decoder(encoder(x)) - x).square().mean().backward()
            optimizer.step()
        return both, optimizer

    equals_one_process(train)
