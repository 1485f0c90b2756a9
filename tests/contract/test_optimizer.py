"""Compares DistributedOptimizer with one process that has the gradients of all ranks."""
import copy
import warnings

import pytest
import torch

import horovod.torch as hvd
from ranks import SIZE, at_least, equal, error_of, everyone, halves, is_error, mine, outcome, restarted, sets_of, total


def model_of(seed=7):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))


def loss_of(model, rank, step=0):
    generator = torch.Generator().manual_seed(100 * rank + step)
    inputs, wanted = torch.randn(6, 4, generator=generator), torch.randn(6, 1, generator=generator)
    return torch.nn.functional.mse_loss(model(inputs), wanted)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def distributed(model, base=sgd, named=True, **options):
    names = {"named_parameters": model.named_parameters()} if named else {}
    return hvd.DistributedOptimizer(base(model.parameters()), **names, **options)


def alone(base=sgd, ranks=None, steps=3, divide=None, passes=1):
    """The parameters after one process has trained with the mean of all ranks' gradients."""
    ranks = list(everyone() if ranks is None else ranks)
    model = model_of()
    optimizer = base(model.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        for rank in ranks:
            for turn in range(passes):
                (loss_of(model, rank, step * passes + turn) / (divide or len(ranks))).backward()
        optimizer.step()
    return list(model.parameters())


def train(model, optimizer, steps=3, passes=1):
    for step in range(steps):
        optimizer.zero_grad()
        for turn in range(passes):
            loss_of(model, hvd.rank(), step * passes + turn).backward()
        optimizer.step()
    return list(model.parameters())


def same(found, expected, rtol=1e-4, atol=1e-6):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.detach(), other.detach(), rtol=rtol, atol=atol)


# ---- the numbers that it computes

BASES = {"SGD": sgd, "SGD plain": lambda p: torch.optim.SGD(p, lr=0.1), "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
         "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01), "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
         "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01), "Adadelta": lambda p: torch.optim.Adadelta(p, lr=0.5),
         "Adamax": lambda p: torch.optim.Adamax(p, lr=0.01), "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01),
         "RAdam": lambda p: torch.optim.RAdam(p, lr=0.01), "ASGD": lambda p: torch.optim.ASGD(p, lr=0.05),
         "Rprop": lambda p: torch.optim.Rprop(p, lr=0.01)}


@pytest.mark.parametrize("base", BASES)
def test_every_optimizer_of_torch_steps_by_the_average(base):
    """Contract §2.12 hooks"""
    model = model_of()
    same(train(model, distributed(model, BASES[base])), alone(BASES[base]), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
def test_all_ranks_come_to_the_same_parameters(named):
    """Contract §2.12 hooks"""
    model = model_of()
    found = torch.cat([parameter.detach().flatten() for parameter in train(model, distributed(model, named=named))])
    rows = hvd.allgather(found.unsqueeze(0))
    for row in rows:
        equal(row, rows[0])
    same(model.parameters(), alone())


def test_named_parameters_may_be_a_generator_or_a_list():
    """Contract §2.12 named_parameters: an iterable"""
    model = model_of()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), named_parameters=list(model.named_parameters()))
    same(train(model, optimizer), alone())


def test_the_sum_of_gradients():
    """Contract §2.12 op"""
    model = model_of()
    base = lambda p: torch.optim.SGD(p, lr=0.05)  # noqa: E731
    same(train(model, distributed(model, base, op=hvd.Sum)), alone(base, divide=1))


@pytest.mark.parametrize("factor", [0.5, 2.0, 8.0])
def test_predividing_gives_the_same_average(factor):
    """Contract §2.12 prescale 1/f, postscale f"""
    model = model_of()
    same(train(model, distributed(model, gradient_predivide_factor=factor)), alone())


def test_compressed_gradients_are_close():
    """Contract §2.12 hooks, §2.11"""
    model = model_of()
    found = train(model, distributed(model, compression=hvd.Compression.fp16))
    same(found, alone(), rtol=1e-2, atol=1e-2)
    assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters())


GROUPS = {"one": lambda model: 1, "two": lambda model: 2, "more than there are": lambda model: 10,
          "lists": lambda model: [list(model.parameters())[:2], list(model.parameters())[2:3]],
          "one list": lambda model: [list(model.parameters())[::-1]]}


@pytest.mark.parametrize("groups", GROUPS)
def test_groups_do_not_change_the_result(groups):
    """Contract §2.12 groups"""
    model = model_of()
    same(train(model, distributed(model, groups=GROUPS[groups](model))), alone())


def test_groups_with_compression_and_several_passes():
    """Contract §2.12 groups"""
    model = model_of()
    found = train(model, distributed(model, groups=2, compression=hvd.Compression.fp16, backward_passes_per_step=2),
                  passes=2)
    same(found, alone(passes=2), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("passes", [2, 3])
def test_gradients_of_several_passes_are_added_and_then_averaged(passes):
    """Contract §2.12 backward_passes_per_step"""
    model = model_of()
    optimizer = distributed(model, backward_passes_per_step=passes)
    same(train(model, optimizer, passes=passes), alone(passes=passes))


def test_passes_per_step_can_be_changed():
    """Contract §2.12 set_backward_passes_per_step"""
    model = model_of()
    optimizer = distributed(model)
    optimizer.set_backward_passes_per_step(2)
    same(train(model, optimizer, passes=2), alone(passes=2))


@at_least(2)
def test_a_backward_pass_too_many_is_an_assertion_error():
    """Contract §2.12 hooks"""
    model = model_of()
    optimizer = distributed(model)
    loss_of(model, hvd.rank()).backward()
    error = error_of(lambda: loss_of(model, hvd.rank(), 1).backward())
    outcome(optimizer.synchronize)
    is_error(error, AssertionError)


@at_least(2)
def test_ranks_may_use_different_parameters():
    """Contract §2.12 synchronize: force allreduce [Horovod tests this]"""
    torch.manual_seed(7)
    model = torch.nn.ModuleList([torch.nn.Linear(3, 1) for _ in range(SIZE)])
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0),
                                         named_parameters=model.named_parameters())
    before = copy.deepcopy(model)
    optimizer.zero_grad()
    model[hvd.rank()](torch.ones(2, 3)).sum().backward()
    optimizer.step()
    for one, other in zip(model.parameters(), before.parameters()):
        torch.testing.assert_close(one, other - 2.0 / SIZE)  # the gradient is that of two rows of ones


def test_a_parameter_without_a_gradient_stays_as_it_is():
    """Contract §2.12 hooks"""
    model = torch.nn.ModuleList([torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)])
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0),
                                         named_parameters=model.named_parameters())
    before = [parameter.detach().clone() for parameter in model[1].parameters()]
    model[0](torch.ones(1, 2)).sum().backward()
    optimizer.step()
    same(model[1].parameters(), before)
    # If no rank has a gradient, zeros are accepted, and also None as in one process.
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in model[1].parameters())


def test_a_frozen_parameter_is_left_alone():
    """Contract §2.12 hooks: parameters that require grad"""
    model = model_of()
    model[0].weight.requires_grad_(False)
    before = model[0].weight.clone()
    optimizer = distributed(model)
    train(model, optimizer)
    equal(model[0].weight, before)


# ---- synchronize, step, zero_grad

@pytest.mark.parametrize("groups", [None, 2])
def test_gradients_can_be_clipped_between_synchronize_and_step(groups):
    """Contract §2.12 skip_synchronize [Horovod tests this]"""
    model = model_of()
    optimizer = distributed(model, groups=groups)
    loss_of(model, hvd.rank()).backward()
    optimizer.synchronize()
    found = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with optimizer.skip_synchronize():
            optimizer.step()
    reference = model_of()
    plain = sgd(reference.parameters())
    for rank in everyone():
        (loss_of(reference, rank) / SIZE).backward()
    expected = torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.01)
    plain.step()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    same(model.parameters(), reference.parameters())


@at_least(2)
def test_synchronize_makes_gradients_the_average():
    """Contract §2.12 synchronize"""
    model = model_of()
    optimizer = distributed(model)
    loss_of(model, hvd.rank()).backward()
    optimizer.synchronize()
    found = [parameter.grad.clone() for parameter in model.parameters()]
    with optimizer.skip_synchronize():
        optimizer.step()
    reference = model_of()
    for rank in everyone():
        (loss_of(reference, rank) / SIZE).backward()
    same(found, [parameter.grad for parameter in reference.parameters()])


@at_least(2)
def test_a_step_after_synchronize_warns_exactly_once():
    """Contract §2.12 step [Horovod tests this]"""
    model = model_of()
    optimizer = distributed(model)
    loss_of(model, hvd.rank()).backward()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.step()
    found = [str(each.message) for each in caught if issubclass(each.category, UserWarning)
             and "optimizer.step() called without optimizer.skip_synchronize()" in str(each.message)]
    assert len(found) == 1


def test_a_plain_step_does_not_warn():
    """Contract §2.12 step"""
    model = model_of()
    optimizer = distributed(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(model, optimizer)


def test_step_gives_the_loss_of_its_closure():
    """Contract §2.12 step(closure)"""
    model = model_of()
    optimizer = distributed(model)
    loss_of(model, hvd.rank()).backward()
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        assert optimizer.step(lambda: 42.0) == 42.0


@at_least(2)
def test_zero_grad_between_backward_and_step_is_an_assertion_error():
    """Contract §2.12 zero_grad"""
    model = model_of()
    optimizer = distributed(model)
    loss_of(model, hvd.rank()).backward()
    error = error_of(optimizer.zero_grad)
    optimizer.step()
    after = error_of(optimizer.zero_grad)
    is_error(error, AssertionError)
    assert after is None


def test_load_state_dict_begins_afresh():
    """Contract §2.12 load_state_dict"""
    model = model_of()
    optimizer = distributed(model)
    train(model, optimizer, steps=2)
    kept, weights = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(model.state_dict())
    once = [parameter.detach().clone() for parameter in train(model, optimizer, steps=2)]
    loss_of(model, hvd.rank()).backward()  # gradients are in flight when the state is loaded
    optimizer.load_state_dict(kept)
    model.load_state_dict(weights)
    same(train(model, optimizer, steps=2), once)


def test_a_learning_rate_schedule_works_on_it():
    """Contract §2.12 class"""
    model, reference = model_of(), model_of()
    optimizer, plain = distributed(model), sgd(reference.parameters())
    schedules = [torch.optim.lr_scheduler.StepLR(each, 1, gamma=0.5) for each in (optimizer, plain)]
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, hvd.rank(), step).backward()
        optimizer.step()
        plain.zero_grad()
        for rank in everyone():
            (loss_of(reference, rank, step) / SIZE).backward()
        plain.step()
        for schedule in schedules:
            schedule.step()
    assert optimizer.param_groups[0]["lr"] == plain.param_groups[0]["lr"] == 0.0125
    same(model.parameters(), reference.parameters())


def test_one_rank_steps_as_the_base_optimizer_does():
    """Contract §2.12: size 1 has no hooks"""
    if SIZE != 1:
        pytest.skip("one rank")
    model, reference = model_of(), model_of()
    optimizer, plain = distributed(model), sgd(reference.parameters())
    optimizer.synchronize()
    for step in range(3):
        for each, other in ((model, optimizer), (reference, plain)):
            other.zero_grad()
            loss_of(each, 0, step).backward()
            other.step()
    for one, other in zip(model.parameters(), reference.parameters()):
        equal(one, other)


def test_two_optimizers_of_one_model_do_not_mix():
    """Contract §2.12 hooks"""
    model = model_of()
    halves_of = [list(model[0].named_parameters(prefix="first")), list(model[2].named_parameters(prefix="second"))]
    optimizers = [hvd.DistributedOptimizer(sgd([parameter for _, parameter in named]), named_parameters=named)
                  for named in halves_of]
    for step in range(3):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss_of(model, hvd.rank(), step).backward()
        for optimizer in optimizers:
            optimizer.step()
    same(model.parameters(), alone())


# ---- process sets

@at_least(2)
@pytest.mark.parametrize("groups", [None, 2])
def test_members_of_a_set_average_among_themselves(groups):
    """Contract §2.12 process_set"""
    with halves() as (half, ranks):
        model = model_of()
        found = train(model, distributed(model, process_set=half, groups=groups))
    same(found, alone(ranks=ranks))


@at_least(2)
def test_who_is_not_in_the_set_steps_alone():
    """Contract §2.12 hooks: only if included"""
    with sets_of([0]) as first:
        model = model_of()
        optimizer = distributed(model, process_set=first)
        found = train(model, optimizer)
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            pass
    same(found, alone(ranks=[hvd.rank()]))


# ---- sparse gradients

def embedding_of(sparse):
    torch.manual_seed(11)
    return torch.nn.Embedding(10, 3, sparse=sparse)


def rows_used(rank, step):
    return torch.tensor([rank, (rank + step) % 10, 9, 9])


def train_embedding(sparse, base, ranks, wrap=None, steps=3):
    model = embedding_of(sparse)
    optimizer = base(model.parameters())
    optimizer = wrap(optimizer, model) if wrap else optimizer
    for step in range(steps):
        optimizer.zero_grad()
        for rank in ranks:
            (model(rows_used(rank, step)).pow(2).sum() / len(ranks)).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("as_dense", [False, True], ids=["sparse", "as dense"])
@pytest.mark.parametrize("base", ["SGD", "SparseAdam", "Adagrad"])
def test_sparse_gradients_are_averaged(base, as_dense):
    """Contract §2.12 sparse gradients"""
    make = {"SGD": lambda p: torch.optim.SGD(p, lr=0.1),
            "SparseAdam": lambda p: torch.optim.SparseAdam(list(p), lr=0.1),
            "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1)}[base]
    found = train_embedding(True, make, [hvd.rank()], lambda optimizer, model: hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), sparse_as_dense=as_dense))
    expected = train_embedding(True, make, list(everyone()))
    if base == "SparseAdam" and as_dense:  # a dense sum may change moments of rows that a sparse sum does not touch
        rows = hvd.allgather(found.weight.detach().unsqueeze(0))
        for row in rows:
            equal(row, rows[0])
    torch.testing.assert_close(found.weight, expected.weight, rtol=1e-4, atol=1e-5)


@at_least(2)
def test_sparse_gradients_stay_in_their_set():
    """Contract §2.12 sparse gradients, process_set"""
    make = lambda p: torch.optim.SGD(p, lr=0.1)  # noqa: E731
    with halves() as (half, ranks):
        found = train_embedding(True, make, [hvd.rank()], lambda optimizer, model: hvd.DistributedOptimizer(
            optimizer, named_parameters=model.named_parameters(), process_set=half))
    torch.testing.assert_close(found.weight, train_embedding(True, make, ranks).weight, rtol=1e-4, atol=1e-5)


# ---- use with other parts of torch

def test_a_grad_scaler_works_with_it():
    """Contract §2.12, issue 20: GradScaler"""
    model = model_of()
    optimizer = distributed(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    for step in range(3):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, hvd.rank(), step)).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
    same(model.parameters(), alone())


@pytest.mark.parametrize("capacity", [0, 2])
def test_the_optimizer_does_not_depend_on_the_cache(capacity):
    """Contract §2.12 DistributedOptimizer, §6.3 response cache"""
    with restarted(HOROVOD_CACHE_CAPACITY=capacity):
        model = model_of()
        found = train(model, distributed(model))
    same(found, alone())


def test_other_ops_may_run_between_backward_and_step():
    """Contract §2.12 DistributedOptimizer"""
    model = model_of()
    optimizer = distributed(model)
    reduced = []
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, hvd.rank(), step).backward()
        reduced.append(hvd.allreduce(mine(), op=hvd.Sum, name="metric"))
        optimizer.step()
    for tensor in reduced:
        equal(tensor, total())
    same(model.parameters(), alone())
