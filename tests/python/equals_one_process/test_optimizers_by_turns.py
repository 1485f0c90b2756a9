"""Programs with several distributed optimizers, where ranks have no batch by turns."""
import pytest
import torch
from training import CLASSES, FEATURES, loss, network


def backward_without_some(world, model, batch, number):
    """Each rank lacks the batch of another number."""
    for rank, x, y in world.parts(*batch):
        if (number + rank) % 3:
            (loss(model(x), y) / (1 if world.distributed else world.ranks)).backward()


@pytest.mark.parametrize("old_has_all", [False, True], ids=["of the head", "of all parameters"])
@pytest.mark.parametrize("options", [{}, {"groups": 1}, {"backward_passes_per_step": 2},
                                     {"backward_passes_per_step": 2, "groups": 1}], ids=str)
def test_an_old_optimizer_that_is_still_there(equals_one_process, options, old_has_all):
    """The second stage of a training has an optimizer of its own. A variable still has that of the first stage."""
    passes = options.get("backward_passes_per_step", 1)

    def train(world):
        model = world.network()
        world.begin(model)

        def make(parameters):
            return world.wrap(torch.optim.SGD(parameters, lr=0.1, momentum=0.5), model, begin=False, **options)

        model[0].requires_grad_(old_has_all)
        old = optimizer = make(model.parameters() if old_has_all else model[2].parameters())
        batches = list(world.batches(6 * passes))
        for step in range(6):
            if step == 3:
                model.requires_grad_(True)
                optimizer = make(model.parameters())
            model.zero_grad(set_to_none=step != 4)
            for number in range(passes - (step == 5 and passes > 1)):
                backward_without_some(world, model, batches[step * passes + number], step + number)
            optimizer.step()
        return model, optimizer, old

    equals_one_process(train)


def test_zero_gradients_that_an_older_optimizer_shows(equals_one_process):
    """The first rank has no batch at first, so that no backward pass takes them back there."""
    def train(world):
        model = world.network(lambda: torch.nn.ModuleList([network(), torch.nn.Linear(2, 2)]))
        old = world.wrap(torch.optim.Adam(model.parameters()), model)
        optimizer = world.wrap(torch.optim.Adam(model.parameters(), lr=0.1), model, begin=False)
        for step, batch in enumerate(world.batches(4)):
            backward_without_some(world, model[0], batch, step)
            optimizer.step()
            model.zero_grad(set_to_none=False)
        return model, optimizer, old

    equals_one_process(train)


@pytest.mark.parametrize("options", [{}, {"groups": 1}], ids=str)
def test_states_loaded_before_steps_in_another_order(equals_one_process, options):
    def train(world):
        model = world.network()
        optimizers = [world.wrap(torch.optim.SGD(model[layer].parameters(), lr=0.1, momentum=0.5), model, **options)
                      for layer in (0, 2)]
        for step, batch in enumerate(world.batches(6)):
            backward_without_some(world, model, batch, step)
            for optimizer in optimizers:
                optimizer.load_state_dict(optimizer.state_dict())
            for optimizer in reversed(optimizers):
                optimizer.step()
            model.zero_grad()
        return model, optimizers

    equals_one_process(train)


def test_a_batch_that_is_dropped_after_a_state_was_loaded(equals_one_process):
    """An earlier state comes back between backward() and step()."""
    def train(world):
        model = world.network()
        optimizer = world.wrap(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5), model)
        for step, (x, y) in enumerate(world.batches(6)):
            loss(model(x), y).backward()
            if step == 3:
                optimizer.load_state_dict(optimizer.state_dict())
            else:
                optimizer.step()
            optimizer.zero_grad()
        return model, optimizer

    equals_one_process(train)


def test_a_dropped_batch_that_had_gradients_of_another_optimizer_on_some_ranks(equals_one_process):
    """All ranks drop the batch. The first rank has no gradients of the second optimizer's expert, before and after."""
    def train(world):
        model = world.network(lambda: torch.nn.ModuleList([torch.nn.Linear(FEATURES, 5), torch.nn.Linear(5, CLASSES),
                                                           torch.nn.Linear(5, 5)]))
        optimizers = [world.wrap(torch.optim.SGD(part.parameters(), lr=0.1), model) for part in (model[:2], model[2])]
        for step, batch in enumerate(world.batches(6)):
            for rank, x, y in world.parts(*batch):
                hidden = model[0](x).tanh()
                output = model[1](hidden + model[2](hidden).tanh() if rank else hidden)
                (loss(output, y) / (1 if world.distributed else world.ranks)).backward()
            if step != 3:
                for optimizer in optimizers:
                    optimizer.step()
            model.zero_grad()
        return model, optimizers

    equals_one_process(train)
