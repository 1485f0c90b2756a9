"""Tests of broadcasts of parameters, optimizer state and objects."""
import collections
import copy

import pytest
import torch

import horovod.torch as hvd
from ranks import SIZE, at_least, equal, error_of, halves, is_error, mine, of

ROOTS = range(max(SIZE, 1))


def model_of(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(5, 4) + hvd.rank() + torch.arange(20.0).reshape(5, 4)).pow(2).sum().backward()
    return optimizer.step(lambda: torch.tensor(0.0))


# ---- broadcast_parameters

@pytest.mark.parametrize("root", ROOTS)
def test_a_state_dict_becomes_that_of_the_root(root):
    """Contract §2.13 broadcast_parameters [Horovod tests this]"""
    model, expected = model_of(hvd.rank()), model_of(root)
    model[1].running_mean.fill_(hvd.rank())
    expected[1].running_mean.fill_(root)
    hvd.broadcast_parameters(model.state_dict(), root_rank=root)
    for name, value in expected.state_dict().items():
        equal(model.state_dict()[name], value)


@pytest.mark.parametrize("kind", ["named parameters", "tensors", "pairs", "dict", "OrderedDict"])
def test_parameters_may_come_in_lists_and_dicts(kind):
    """Contract §2.13 broadcast_parameters"""
    tensors = {"b": mine((3,)), "a": mine((2, 2), torch.int64)}
    given = {"named parameters": list(tensors.items()), "tensors": list(tensors.values()),
             "pairs": [(name, tensor) for name, tensor in tensors.items()], "dict": tensors,
             "OrderedDict": collections.OrderedDict(tensors)}[kind]
    hvd.broadcast_parameters(given, root_rank=SIZE - 1)
    equal(tensors["b"], of(SIZE - 1, (3,)))
    equal(tensors["a"], of(SIZE - 1, (2, 2), torch.int64))


def test_parameters_of_a_model_may_be_a_generator_of_names():
    """Contract §2.13 broadcast_parameters"""
    model = model_of(hvd.rank())
    hvd.broadcast_parameters(list(model.named_parameters()), 0)
    for parameter, other in zip(model.parameters(), model_of(0).parameters()):
        equal(parameter.detach(), other.detach())


@at_least(2)
def test_a_dict_is_sent_in_the_order_of_its_keys():
    """Contract §2.13 broadcast_parameters: sorted"""
    names = ["x", "y", "z"] if hvd.rank() == 0 else ["z", "x", "y"]
    tensors = {name: mine((len(name) + ord(name) % 3,)) for name in names}
    hvd.broadcast_parameters(tensors, 0)
    for name, tensor in tensors.items():
        equal(tensor, of(0, (len(name) + ord(name) % 3,)))


@pytest.mark.parametrize("wrong", [5, "text", None])
def test_parameters_of_another_kind_are_a_value_error(wrong):
    """Contract §2.13 broadcast_parameters"""
    is_error(error_of(hvd.broadcast_parameters, wrong, root_rank=0), ValueError)


def test_integers_and_scalars_among_parameters_are_broadcast_too():
    """Contract §2.13, §2.5: BatchNorm counts its batches"""
    state = {"count": torch.tensor(hvd.rank() + 3), "mask": torch.tensor([hvd.rank()], dtype=torch.uint8)}
    hvd.broadcast_parameters(state, root_rank=0)
    assert state["count"].item() == 3 and state["mask"].item() == 0


# ---- broadcast_optimizer_state

def all_optimizers():
    needs = {"SparseAdam", "LBFGS", "Muon"}  # these optimizers need other parameters
    return [name for name in sorted(vars(torch.optim)) if isinstance(getattr(torch.optim, name), type)
            and issubclass(getattr(torch.optim, name), torch.optim.Optimizer) and name not in needs | {"Optimizer"}]


def optimizer_of(name, model, factor=1):
    return getattr(torch.optim, name)(model.parameters(), lr=0.01 * factor)


def plain(state):
    """The state with lists in the place of tensors, so that two states can be compared."""
    return {key: value.tolist() if isinstance(value, torch.Tensor) else value for key, value in state.items()}


@pytest.mark.parametrize("name", all_optimizers())
@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "distributed"])
def test_the_state_of_every_optimizer_becomes_that_of_the_root(name, wrapped):
    """Contract §2.13 broadcast_optimizer_state [Horovod tests this]"""
    model = model_of(3)
    optimizer = optimizer_of(name, model, hvd.rank() + 1)
    if wrapped:
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    else:
        for _ in range(hvd.rank() + 1):
            step(model, optimizer)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    state = optimizer.state_dict()
    objects = hvd.allgather_object(([plain(each) for each in state["state"].values()], state["param_groups"]))
    for found in objects:
        assert str(found) == str(objects[0])
    assert all(group["lr"] == 0.01 for group in optimizer.param_groups)


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad", "RMSprop", "ASGD"])
def test_types_of_options_and_of_state_are_preserved(name):
    """Contract §2.13 broadcast_optimizer_state [Horovod tests this]"""
    model = model_of(3)
    optimizer = optimizer_of(name, model, hvd.rank() + 1)
    step(model, optimizer)

    def types():
        return ([{key: type(value) for key, value in group.items()} for group in optimizer.param_groups],
                [{key: type(value) for key, value in each.items()} for each in optimizer.state.values()])

    before = types()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert types() == before


def test_a_root_with_state_fills_ranks_that_have_none():
    """Contract §2.13 broadcast_optimizer_state: empty state is materialised [Horovod tests this]"""
    model = model_of(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    if hvd.rank() == 0:
        step(model, optimizer)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    expected_model = model_of(3)
    expected = torch.optim.SGD(expected_model.parameters(), lr=0.01, momentum=0.9)
    inputs = torch.ones(5, 4) + torch.arange(20.0).reshape(5, 4)
    expected_model(inputs).pow(2).sum().backward()
    expected.step()
    for one, other in zip(optimizer.state.values(), expected.state.values(), strict=True):
        torch.testing.assert_close(one["momentum_buffer"], other["momentum_buffer"], rtol=1e-5, atol=1e-6)


@at_least(2)
def test_materialising_a_state_does_not_move_the_parameters():
    """Contract §2.13 broadcast_optimizer_state"""
    model = model_of(3)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for parameter, other in zip(model.parameters(), before):
        equal(parameter.detach(), other)


def test_gradients_are_zeros_after_materialising_a_state():
    """Contract §2.13 broadcast_optimizer_state [Horovod tests this]"""
    model = model_of(3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for parameter in model.parameters():
        if parameter.grad is not None:
            equal(hvd.broadcast(parameter.grad, 0), torch.zeros_like(parameter))
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_options_of_an_optimizer_without_state_are_broadcast():
    """Contract §2.13; better than upstream, which returns"""
    model = model_of(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (hvd.rank() + 1))
    hvd.broadcast_optimizer_state(optimizer, root_rank=SIZE - 1)
    assert optimizer.param_groups[0]["lr"] == 0.1 * SIZE


def test_options_of_several_groups_are_broadcast():
    """Contract §2.13 param-group options"""
    model = model_of(3)
    factor = hvd.rank() + 1
    optimizer = torch.optim.Adam([{"params": model[0].parameters(), "lr": 0.1 * factor, "note": f"from {factor}"},
                                  {"params": model[2].parameters(), "betas": (0.5 / factor, 0.9)}], lr=0.3)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    first, second = optimizer.param_groups
    assert (first["lr"], first["note"], second["betas"]) == (0.1, "from 1", (0.5, 0.9))
    assert isinstance(second["betas"], tuple) and len(first["params"]) == 2


def test_lbfgs_is_a_value_error():
    """Contract §2.13 broadcast_optimizer_state"""
    error = error_of(hvd.broadcast_optimizer_state, torch.optim.LBFGS(model_of(3).parameters()), root_rank=0)
    is_error(error, ValueError)


@pytest.mark.parametrize("base", [lambda p: torch.optim.SparseAdam(list(p), lr=0.1),
                                  lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)], ids=["SparseAdam", "SGD"])
def test_the_state_of_sparse_embeddings_is_broadcast(base):
    """Contract §2.13 broadcast_optimizer_state: sparse zero grads"""
    torch.manual_seed(hvd.rank())
    model = torch.nn.Embedding(6, 2, sparse=True)
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer = base(model.parameters())
    if hvd.rank() == 0:
        model(torch.tensor([1, 2])).sum().backward()
        optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=model)
    found = [plain({key: value.to_dense() if isinstance(value, torch.Tensor) else value for key, value in each.items()})
             for each in optimizer.state.values()]
    objects = hvd.allgather_object(found)
    assert all(str(each) == str(objects[0]) for each in objects)


@at_least(2)
def test_training_goes_on_from_a_checkpoint_of_the_root():
    """Contract §2.13 broadcast helpers [Horovod tests this]"""
    def train(model, optimizer, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(4, 4) * torch.arange(4.0)).pow(2).sum().backward()
            optimizer.step()

    def made():
        model = model_of(5)
        return model, hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.01),
                                               named_parameters=model.named_parameters())

    reference, its_optimizer = made()
    train(reference, its_optimizer, 2)
    kept = copy.deepcopy((reference.state_dict(), its_optimizer.state_dict()))
    train(reference, its_optimizer, 2)
    model, optimizer = made()
    if hvd.rank() == 0:  # rank 0 alone loads the checkpoint
        model.load_state_dict(kept[0])
        optimizer.load_state_dict(kept[1])
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    train(model, optimizer, 2)
    for one, other in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


# ---- objects

@pytest.mark.parametrize("root", ROOTS)
def test_an_object_becomes_that_of_the_root(root):
    """Contract §2.13 broadcast_object [Horovod tests this]"""
    found = hvd.broadcast_object({"rank": hvd.rank(), "list": list(range(hvd.rank()))}, root_rank=root)
    assert found == {"rank": root, "list": list(range(root))}


def test_the_root_gets_its_own_object():
    """Contract §2.13 broadcast_object"""
    made = [hvd.rank()]
    found = hvd.broadcast_object(made, root_rank=0, name="own")
    assert (found is made) if hvd.rank() == 0 else (found == [0])


@pytest.mark.parametrize("kind", [lambda: lambda x: x + 1, lambda: "text ≥", lambda: None, lambda: torch.ones(3),
                                  lambda: b"x" * 3_000_000], ids=["lambda", "text", "None", "tensor", "large"])
def test_an_object_may_be_anything_that_cloudpickle_takes(kind):
    """Contract §2.13 broadcast_object"""
    made = kind()
    found = hvd.broadcast_object(made if hvd.rank() == 0 else None, 0, "anything")
    if callable(made):
        assert found(1) == 2
    elif isinstance(made, torch.Tensor):
        equal(found.cpu(), made.cpu())  # a tensor on a GPU comes back on the root's
    else:
        assert found == made


@at_least(2)
def test_an_object_is_broadcast_within_a_set():
    """Contract §2.13 broadcast_object(process_set)"""
    with halves() as (half, ranks):
        found = hvd.broadcast_object(hvd.rank(), root_rank=ranks[-1], process_set=half)
    assert found == ranks[-1]
