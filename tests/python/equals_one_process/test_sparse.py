"""Trains embeddings with sparse gradients."""
import copy

import pytest
import torch
from training import OneProcess, loss

AS_DENSE = pytest.mark.parametrize("as_dense", [False, True], ids=["sparse", "sparse_as_dense"])
GROUPS = pytest.mark.parametrize("groups", [None, 1], ids=["", "one group"])

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.5),
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9),
    "SparseAdam": lambda p: torch.optim.SparseAdam(p, lr=0.05),
    "SparseAdam maximize": lambda p: torch.optim.SparseAdam(p, lr=0.05, maximize=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
}


def embedding(kind=torch.nn.EmbeddingBag):
    return kind(10, 3, sparse=True, mode="sum") if kind is torch.nn.EmbeddingBag else kind(10, 3, sparse=True)


def words(x):
    """A few words for each row. Some words are twice in a batch, and some are in the part of only one rank."""
    return (x.abs() * 7).long() % 10


def train_with(make, rows=8, kind=torch.nn.EmbeddingBag, start="fresh", **options):
    def load(model, optimizer):
        model.load_state_dict(saved[0])
        optimizer.load_state_dict(copy.deepcopy(saved[1]))  # a copy, because torch uses the tensors that it is given

    def train(world):
        model = world.network(embedding, kind)
        optimizer = make(model.parameters())
        if start == "loaded before wrapping":
            load(model, optimizer)
        optimizer = world.wrap(optimizer, model, **options if world.distributed else {})
        if start == "resumed by the root" and world.rank == 0:
            load(model, optimizer)
        world.begin(model, optimizer)
        for x, y in world.batches(rows=rows):
            optimizer.zero_grad()
            output = model(words(x))
            loss(output if output.dim() == 2 else output.sum(1), y).backward()
            optimizer.step()
        return model, optimizer

    saved = None
    if start != "fresh":
        world = OneProcess()
        model = world.network(embedding, kind)
        optimizer = make(model.parameters())
        for x, y in world.batches(5, first=50):
            optimizer.zero_grad()
            loss(model(words(x)), y).backward()
            optimizer.step()
        saved = model.state_dict(), optimizer.state_dict()
    return train


@AS_DENSE
@GROUPS
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_embeddings(equals_one_process, optimizer, as_dense, groups):
    equals_one_process(train_with(OPTIMIZERS[optimizer], sparse_as_dense=as_dense, groups=groups))


@pytest.mark.parametrize("start", ["loaded before wrapping", "resumed by the root"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_with_a_state_that_is_loaded(equals_one_process, optimizer, start):
    equals_one_process(train_with(OPTIMIZERS[optimizer], start=start))


@AS_DENSE
def test_a_table_of_words(equals_one_process, as_dense):
    equals_one_process(train_with(OPTIMIZERS["SparseAdam"], kind=torch.nn.Embedding, sparse_as_dense=as_dense))


def test_sum(equals_one_process, hvd):
    def train(world):
        model = world.network(embedding)
        optimizer = world.wrap(OPTIMIZERS["SparseAdam"](model.parameters()), model, op=hvd.Sum)
        for x, y in world.batches():
            optimizer.zero_grad()
            loss(model(words(x)), y, reduction="sum").backward()
            optimizer.step()
        return model, optimizer

    equals_one_process(train)


@AS_DENSE
def test_beside_dense_parameters_of_another_optimizer(equals_one_process, as_dense):
    def train(world):
        model = world.network(lambda: torch.nn.Sequential(embedding(), torch.nn.Tanh(), torch.nn.Linear(3, 3)))
        sparse, dense = (OPTIMIZERS["SparseAdam"](model[0].parameters()), torch.optim.Adam(model[2].parameters()))
        optimizers = [world.wrap(sparse, model[0], sparse_as_dense=as_dense), world.wrap(dense, model[2])]
        for x, y in world.batches():
            model.zero_grad()
            loss(model(words(x)), y).backward()
            for optimizer in optimizers:
                optimizer.step()
        return model, optimizers

    equals_one_process(train)


@AS_DENSE
@pytest.mark.parametrize("clip", [False, True], ids=["", "clip"])
def test_in_one_optimizer_with_dense_parameters(equals_one_process, as_dense, clip):
    def train(world):
        model = world.network(lambda: torch.nn.Sequential(embedding(), torch.nn.Tanh(), torch.nn.Linear(3, 3)))
        optimizer = world.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model, sparse_as_dense=as_dense)
        for x, y in world.batches():
            optimizer.zero_grad()
            loss(model(words(x)), y).backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(model[2].parameters(), 0.05)
            optimizer.step()
        return model, optimizer

    equals_one_process(train)


@AS_DENSE
def test_used_by_turns(equals_one_process, as_dense):
    """Not every rank uses the embedding in every step. In a step in which no rank uses it, there is no gradient, and
    the embedding does not change."""
    def train(world):
        model = world.network(embedding)
        head = world.network(torch.nn.Linear, 3, 3)
        both = torch.nn.ModuleList([model, head])
        optimizer = world.wrap(torch.optim.Adagrad(both.parameters(), lr=0.1), both, sparse_as_dense=as_dense)
        for step, (x, y) in enumerate(world.batches()):
            optimizer.zero_grad()
            loss(head(model(words(x)) if step % 3 else x[:, :3]), y).backward()
            optimizer.step()
        return both, optimizer

    equals_one_process(train)


@AS_DENSE
def test_accumulated(equals_one_process, as_dense):
    def train(world):
        model = world.network(embedding)
        optimizer = world.wrap(OPTIMIZERS["SparseAdam"](model.parameters()), model, backward_passes_per_step=2,
                               sparse_as_dense=as_dense)
        for index, (x, y) in enumerate(world.batches(40)):
            (loss(model(words(x)), y) / 2).backward()
            if index % 2:
                optimizer.step()
                optimizer.zero_grad()
        return model, optimizer

    equals_one_process(train)


@pytest.mark.parametrize("joins", [False, True], ids=["", "a parameter joins"])
@GROUPS
def test_that_a_rank_lacks_when_others_are_lacking_too(equals_one_process, groups, joins):
    """The first rank has a table's gradient, but not that of the bias; the others have no batch by turns."""
    def train(world):
        model = world.network(lambda: torch.nn.ModuleList([embedding(), torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)]))
        trained = [*model[0].parameters(), *model[1].parameters()]
        optimizer = world.wrap(torch.optim.SGD(trained, lr=0.5), model, groups=groups)
        for step, (x, y) in enumerate(world.batches(6)):
            optimizer.zero_grad()
            for rank, x, y in world.parts(x, y):
                if rank == 0 or step % 2:
                    output = torch.nn.functional.linear(model[0](words(x)), model[1].weight)
                    (loss(output, y) / (1 if world.distributed else world.ranks)).backward()
            if joins and step == 2:
                optimizer.add_param_group({"params": list(model[2].parameters())})
            optimizer.step()
        return model, optimizer

    equals_one_process(train)


def test_steps_by_rows_on_ranks_that_lack_the_gradient(equals_one_process):
    """Adagrad rounds otherwise where a gradient is dense."""
    def train(world):
        model = world.network(lambda: torch.nn.ModuleList([embedding(), torch.nn.Linear(3, 3)]))
        optimizer = world.wrap(torch.optim.Adagrad(model.parameters(), lr=0.5), model, sparse_as_dense=True)
        for step, (x, y) in enumerate(world.batches(12)):
            optimizer.zero_grad()
            for rank, x, y in world.parts(x, y):
                if (rank + step) % 2:
                    (loss(model[1](model[0](words(x))), y) / (1 if world.distributed else world.ranks)).backward()
            optimizer.step()
        return model, optimizer

    equals_one_process(train)
