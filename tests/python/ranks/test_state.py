"""Tests of broadcast_parameters, broadcast_optimizer_state, broadcast_object and allgather_object."""
import pytest
import torch


def network(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 2))


def assert_equal_on_all_ranks(hvd, tensors):
    for tensor in tensors:
        assert torch.equal(hvd.broadcast(tensor.detach(), 0), tensor.detach())


@pytest.mark.parametrize("what", [lambda m: m.state_dict(), lambda m: list(m.named_parameters()),
                                  lambda m: m.named_parameters(), lambda m: [p.data for p in m.parameters()]],
                         ids=["state_dict", "named list", "generator", "list"])
def test_broadcast_parameters(hvd, rank, size, what):
    root = size - 1
    model = network(seed=rank)
    expected = network(seed=root).state_dict()
    hvd.broadcast_parameters(what(model), root_rank=root)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter.detach(), expected[name])


def test_broadcast_parameters_of_something_else(hvd):
    with pytest.raises(ValueError):
        hvd.broadcast_parameters(17, root_rank=0)


def test_broadcast_parameters_that_are_not_contiguous(hvd, rank):
    tensor = torch.full((4, 6), float(rank)).t()
    hvd.broadcast_parameters({"t": tensor}, root_rank=0)
    assert torch.equal(tensor, torch.zeros(6, 4))


def test_broadcast_parameters_that_expand_gave_several_times(hvd, rank):
    column = torch.full((3, 1), float(rank))
    hvd.broadcast_parameters({"t": column.expand(3, 4)}, root_rank=0)
    assert torch.equal(column, torch.zeros(3, 1))


@pytest.mark.parametrize("make", [lambda t: t.to_sparse(), lambda t: t.to_sparse_csr(), lambda t: t.to_sparse_csc()],
                         ids=["coo", "csr", "csc"])
def test_broadcast_parameters_that_are_sparse(hvd, rank, make):
    """As the matrix of a graph that a model keeps in a buffer."""
    module = torch.nn.Module()
    module.register_buffer("matrix", make(torch.eye(4).roll(rank, 0) * (rank + 1)))
    hvd.broadcast_parameters(module.state_dict(), root_rank=0)
    assert torch.equal(module.matrix.to_dense(), torch.eye(4))


@pytest.mark.parametrize("what", [lambda m: {"model": m.state_dict(), "epoch": 3}, lambda m: {"model": m},
                                  lambda m: {"state": {0: {"step": torch.ones(1)}}}], ids=["state", "model", "nested"])
def test_broadcast_parameters_of_a_checkpoint_is_an_error(hvd, what):
    with pytest.raises(ValueError, match="the state_dict of one model"):
        hvd.broadcast_parameters(what(network(0)), root_rank=0)


def test_broadcast_parameters_beside_what_modules_have_besides(hvd):
    hvd.broadcast_parameters({"a._extra_state": {"scale": torch.ones(1)}, "hook": {"version": 2}}, root_rank=0)


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD with momentum and weight decay": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.2),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1, amsgrad=True),
    "Adamax": lambda p: torch.optim.Adamax(p),
    "Adagrad": lambda p: torch.optim.Adagrad(p),
    "Adadelta": lambda p: torch.optim.Adadelta(p),
    "RMSprop": lambda p: torch.optim.RMSprop(p, momentum=0.5, centered=True),
    "NAdam": lambda p: torch.optim.NAdam(p),
    "ASGD": lambda p: torch.optim.ASGD(p),
    "Rprop": lambda p: torch.optim.Rprop(p),
}


def a_step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(3, 4) * torch.arange(3.0).unsqueeze(1)).sum().backward()
    optimizer.step()


def flat_state(optimizer):
    state = optimizer.state_dict()["state"]
    return {(index, key): value for index in state for key, value in state[index].items()}


@pytest.mark.parametrize("distributed", [False, True], ids=["plain", "distributed"])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_optimizer_state(hvd, rank, kind, distributed):
    """Rank 0 has the state of a checkpoint, the other ranks have fresh optimizers."""
    model = network(seed=rank)
    optimizer = OPTIMIZERS[kind](model.parameters())
    if rank == 0:
        for _ in range(3):
            a_step(model, optimizer)
        for group in optimizer.param_groups:
            group["lr"] = 0.0625
    if distributed:
        state = optimizer.state_dict()
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        optimizer.load_state_dict(state)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    assert_equal_on_all_ranks(hvd, model.parameters())
    expected = hvd.broadcast_object(flat_state(optimizer))
    found = flat_state(optimizer)
    assert found.keys() == expected.keys() and (found or kind == "SGD")
    for key, value in found.items():
        assert type(value) is type(expected[key])
        if isinstance(value, torch.Tensor):
            assert value.dtype == expected[key].dtype and torch.equal(value, expected[key])
        else:
            assert value == expected[key]
    assert all(group["lr"] == 0.0625 and type(group["lr"]) is float for group in optimizer.param_groups)
    a_step(model, optimizer)
    if distributed:
        assert_equal_on_all_ranks(hvd, model.parameters())


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_optimizers_without_state_stay_fresh(hvd, rank, kind):
    """The broadcast must not step the optimizer: a step would set Adam's count to 1, and momentum and weight decay
    would change the parameters."""
    model = network(seed=0)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = OPTIMIZERS[kind](model.parameters())
    expected = flat_state(optimizer)  # Adagrad and some others have a state from the beginning
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert flat_state(optimizer).keys() == expected.keys()
    for parameter, earlier in zip(model.parameters(), before):
        assert torch.equal(parameter.detach(), earlier) and parameter.grad is None


def test_a_rank_with_state_becomes_as_fresh_as_the_root(hvd, rank):
    model = network(seed=0)
    optimizer = torch.optim.Adam(model.parameters())
    if rank != 0:
        a_step(model, optimizer)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert not flat_state(optimizer)


def test_scripts_find_gradients_after_the_broadcast_and_no_step_is_made_by_them(hvd, rank):
    """After the broadcast, a fresh distributed optimizer has gradients of zeros, as with Horovod."""
    used, unused = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([used, unused], lr=0.5, weight_decay=0.5),
                                         [("used", used), ("unused", unused)])
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for parameter in (used, unused):
        assert torch.equal(hvd.broadcast(parameter.grad, 0), torch.zeros(3))
    used.sum().backward()
    optimizer.step()
    assert torch.equal(used.detach(), torch.full((3,), 0.25))
    assert torch.equal(unused.detach(), torch.ones(3)) and unused.grad is None


def test_state_of_other_kinds(hvd, rank):
    """State under keys that are not parameters, state in lists, complex numbers, and a single value for a parameter."""
    parameters = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    if rank == 0:
        optimizer.state["steps"] = 7
        optimizer.state[parameters[0]] = {"history": [torch.ones(2), 3], "phase": torch.tensor([1 + 2j, 3j])}
    else:
        optimizer.state["other"] = "local"
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.state["steps"] == 7 and "other" not in optimizer.state
    state = optimizer.state[parameters[0]]
    assert torch.equal(state["history"][0], torch.ones(2)) and state["history"][1] == 3
    assert torch.equal(state["phase"], torch.tensor([1 + 2j, 3j]))
    assert parameters[1] not in optimizer.state


@pytest.mark.parametrize("make", [
    lambda: torch.tensor([1 + 2j, 3j]), lambda: torch.tensor([1 + 2j, 3j]).conj(), lambda: torch.tensor(5j),
    lambda: torch.tensor([1.5, 2.0]).to(torch.float8_e4m3fn), lambda: torch.tensor([2**31 + 1]).to(torch.uint32),
], ids=["complex", "conjugated", "scalar", "float8", "uint32"])
def test_broadcast_parameters_of_types_that_are_not_reduced(hvd, rank, make):
    tensor = make()
    expected = tensor.clone()
    if rank != 0:
        tensor.copy_(torch.zeros_like(tensor))
    hvd.broadcast_parameters({"t": tensor}, root_rank=0)
    assert torch.equal(tensor.resolve_conj().view(torch.uint8) if tensor.dim() else tensor,
                       expected.resolve_conj().view(torch.uint8) if tensor.dim() else expected)


def test_options_keep_their_types(hvd, rank):
    model = network(seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001 * (rank + 1), betas=(0.8, 0.9 + 0.01 * rank),
                                 amsgrad=True)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    group = optimizer.param_groups[0]
    assert group["lr"] == 0.001 and group["betas"] == (0.8, 0.9) and group["amsgrad"] is True
    assert type(group["betas"]) is tuple


@pytest.mark.parametrize("rate", [lambda rank: 0.1 * (rank + 1), lambda rank: torch.tensor(0.1 * (rank + 1))],
                         ids=["number", "tensor"])
def test_a_group_that_is_added_later_gets_the_roots_options(hvd, rank, rate):
    first, second = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))
    optimizer = torch.optim.SGD([first], lr=rate(rank), momentum=0.1 * rank)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5).step()  # changes a tensor in place
    optimizer.add_param_group({"params": [second]})
    options = [(float(group["lr"]), group["momentum"]) for group in optimizer.param_groups]
    assert options == hvd.broadcast_object(options)
    assert options[1][1] == 0.0


def test_sparse_optimizer(hvd, rank):
    """Rank 0 has made a step with sparse gradients. Their momentum is sparse, too."""
    torch.manual_seed(rank)
    embedding = torch.nn.Embedding(6, 2, sparse=True)
    for optimizer in (torch.optim.SparseAdam(embedding.parameters()),
                      torch.optim.SGD(embedding.parameters(), lr=0.1, momentum=0.9)):
        if rank == 0:
            embedding(torch.tensor([1, 4])).sum().backward()
            optimizer.step()
        hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=embedding)
        expected = hvd.broadcast_object(flat_state(optimizer))
        found = flat_state(optimizer)
        assert found and found.keys() == expected.keys()
        for key, value in found.items():
            assert type(value) is type(expected[key])
            if isinstance(value, torch.Tensor):
                assert value.layout == expected[key].layout and torch.equal(value.to_dense(), expected[key].to_dense())


def test_lbfgs_is_refused(hvd):
    with pytest.raises(ValueError):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS(network(0).parameters()), root_rank=0)


def test_optimizers_that_differ(hvd, rank):
    parameters = list(network(seed=0).parameters())
    groups = [{"params": parameters}] if rank == 0 else [{"params": parameters[:2]}, {"params": parameters[2:]}]
    with pytest.raises(ValueError, match="parameter groups"):
        hvd.broadcast_optimizer_state(torch.optim.SGD(groups, lr=0.1, momentum=0.9), root_rank=0)


def test_optimizers_whose_parameters_have_other_shapes(hvd, rank):
    parameters = [torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(3))]
    optimizer = torch.optim.SGD(parameters if rank == 0 else parameters[::-1], lr=0.1, momentum=0.9)
    with pytest.raises(ValueError, match=r"rank 1 .here. differ: parameter 0 has shape \[2\] there, \[3\] here"):
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)


def test_optimizers_whose_groups_differ(hvd, rank):
    model = torch.nn.Linear(4, 4)
    groups = [{"params": [model.weight], "weight_decay": 0.5}, {"params": [model.bias]}]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(groups if rank == 0 else groups[::-1], lr=0.1),
                                         named_parameters=model.named_parameters())
    with pytest.raises(ValueError, match="parameter weight is in group 0 there, in group 1 here"):
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)


def test_state_goes_by_names_where_parameters_have_them(hvd, rank):
    """Rank 0 has put its parameters into the optimizer in another order than the other ranks."""
    parameters = [(str(i), torch.nn.Parameter(torch.zeros(2))) for i in range(3)]
    mine = parameters if rank == 0 else parameters[::-1]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p for _, p in mine], lr=0.1, momentum=0.9), mine)
    if rank == 0:
        for name, parameter in parameters:
            optimizer.state[parameter]["momentum_buffer"] = torch.full((2,), float(name))
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for name, parameter in parameters:
        assert torch.equal(optimizer.state[parameter]["momentum_buffer"], torch.full((2,), float(name)))


OBJECTS = [None, 17, "text", {"a": [1, 2.5, (3,)], "b": None}, list(range(100_000)), torch.arange(5), lambda x: x + 1]


@pytest.mark.parametrize("index", range(len(OBJECTS)))
def test_broadcast_object(hvd, rank, size, index):
    root = size - 1
    given = OBJECTS[index] if rank == root else {"of": rank}
    result = hvd.broadcast_object(given, root_rank=root)
    if rank == root:
        assert result is given
    elif callable(result):
        assert result(1) == 2
    elif isinstance(result, torch.Tensor):
        assert torch.equal(result, OBJECTS[index])
    else:
        assert result == OBJECTS[index]


def test_allgather_object(hvd, rank, size):
    assert hvd.allgather_object({"rank": rank, "much": "x" * rank * 1000}) == [
        {"rank": other, "much": "x" * other * 1000} for other in range(size)]
    assert hvd.allgather_object(rank, name="named") == list(range(size))
