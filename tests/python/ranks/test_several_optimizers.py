"""Several distributed optimizers in one program: of the same parameters, and in other orders on other ranks."""
import pytest
import torch


def parameter_of(value=0.0):
    return torch.nn.Parameter(torch.full((3,), value))


def sgd(hvd, name, *parameters, **options):
    plain = torch.optim.SGD(parameters, lr=1.0)
    return hvd.DistributedOptimizer(plain, [(f"{name}.{i}", each) for i, each in enumerate(parameters)], **options)


def full(value):
    return torch.full((3,), float(value))


@pytest.fixture
def sets(hvd, size):
    """A process set for each rank."""
    hvd.shutdown()
    each_alone = [hvd.ProcessSet([each]) for each in range(size)]
    hvd.init(process_sets=each_alone)
    yield each_alone
    hvd.shutdown()
    hvd.init()


# ---- one parameter ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of_set_first", [False, True])
def test_one_parameter_reduced_over_a_set_and_over_all_ranks_is_an_error(hvd, rank, sets, of_set_first):
    shared = parameter_of()
    make = [lambda: sgd(hvd, "of all", shared), lambda: sgd(hvd, "of a set", shared, process_set=sets[rank])]
    optimizers = [each() for each in (reversed(make) if of_set_first else make)]
    with pytest.raises(RuntimeError, match=r"gradient of 'of .*0' would be reduced in two ways.*over the ranks \[\d\]"):
        shared.sum().backward()
    shared.grad = full(rank)  # not from a backward pass
    with pytest.raises(RuntimeError, match="reduced in two ways"):
        optimizers[0].step()


def test_one_parameter_averaged_and_summed_is_an_error(hvd, rank, size):
    shared = parameter_of()
    average, total = sgd(hvd, "average", shared), sgd(hvd, "sum", shared, op=hvd.Sum)
    with pytest.raises(RuntimeError, match="op=hvd.(Average|Sum) over all ranks, and by one with op=hvd.(Average|Sum)"):
        shared.sum().backward()
    del average
    shared.grad = None
    (shared * (rank + 1)).sum().backward()
    total.step()
    assert torch.equal(shared.detach(), full(-size * (size + 1) / 2))


def test_an_optimizer_in_a_cycle_that_nobody_has_is_no_reason_for_an_error(hvd, rank, size):
    shared = parameter_of()
    old = sgd(hvd, "old", shared, op=hvd.Sum)
    old.itself = old
    optimizer = sgd(hvd, "new", shared)
    del old
    (shared * (rank + 1)).sum().backward()
    optimizer.step()
    assert torch.equal(shared.detach(), full(-(size + 1) / 2))


@pytest.mark.parametrize("read", [False, True], ids=["", "read between the hooks"])
@pytest.mark.parametrize("by_hand", [False, True], ids=["", "gradients set by hand"])
def test_a_sum_that_two_optimizers_step_by_is_made_once(hvd, rank, size, by_hand, read):
    shared = parameter_of()
    one = sgd(hvd, "one", shared, op=hvd.Sum)
    if read:
        shared.register_post_accumulate_grad_hook(lambda parameter: print(parameter.grad.sum()))
    other = sgd(hvd, "other", shared, op=hvd.Sum)
    for _ in range(2):
        if by_hand:
            shared.grad = full(rank + 1)
        else:
            (shared * (rank + 1)).sum().backward()
        one.step()
        other.step()
        one.zero_grad()
        other.zero_grad()
    assert torch.equal(shared.detach(), full(-2 * size * (size + 1)))


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_shared_parameter_of_which_only_one_rank_has_a_gradient(hvd, rank, size, order):
    shared, own = parameter_of(), parameter_of()
    optimizers = {"a": sgd(hvd, "a", shared), "b": sgd(hvd, "b", shared, own)}
    for _ in range(2):
        (own.sum() + (shared.sum() * size if rank == 0 else 0)).backward()
        for name in order:
            optimizers[name].step()
        for optimizer in optimizers.values():
            optimizer.zero_grad()
    assert torch.equal(shared.detach(), full(-4)) and torch.equal(own.detach(), full(-2))


@pytest.mark.parametrize("rare_first", [False, True])
def test_one_optimizer_steps_twice_before_the_other_steps(hvd, rank, size, rare_first):
    """Nobody removes the gradients meanwhile, so the second backward pass adds to those of the first."""
    shared = parameter_of()
    first, second = sgd(hvd, "first", shared), sgd(hvd, "second", shared)
    rare, often = (first, second) if rare_first else (second, first)
    for _ in range(2):
        for _ in range(2):
            (shared * (rank + 1)).sum().backward()
            often.step()
        rare.step()
        rare.zero_grad()
    assert torch.equal(shared.detach(), full(-2 * 5 * (size + 1) / 2))


def test_a_batch_that_was_dropped_had_gradients_that_do_not_come_again(hvd, rank, size):
    shared, other = parameter_of(), parameter_of()
    one, both = sgd(hvd, "one", shared), sgd(hvd, "both", shared, other)
    for _ in range(2):
        (shared + other).sum().backward()
        shared.grad = other.grad = None
        (shared * (rank + 1)).sum().backward()
        one.step()
        both.step()
        one.zero_grad()
        both.zero_grad()
    assert torch.equal(shared.detach(), full(-2 * (size + 1))) and torch.equal(other.detach(), full(0))


@pytest.mark.parametrize("with_group_first", [False, True])
def test_a_group_does_not_wait_for_what_another_optimizer_reduces(hvd, rank, size, with_group_first):
    shared, own = parameter_of(), parameter_of()
    make = [lambda: sgd(hvd, "plain", shared), lambda: sgd(hvd, "with a group", shared, own, groups=1)]
    optimizers = [each() for each in (reversed(make) if with_group_first else make)]
    for _ in range(2):
        ((shared + own) * (rank + 1)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
        for optimizer in optimizers:
            optimizer.zero_grad()
    assert torch.equal(shared.detach(), full(-2 * (size + 1))) and torch.equal(own.detach(), full(-(size + 1)))


# ---- orders of steps --------------------------------------------------------------------------------------------


def test_optimizers_that_are_stepped_in_another_order_on_every_rank(hvd, rank, size):
    """After the backward pass every rank has all gradients."""
    parameters = [parameter_of() for _ in range(size)]
    optimizers = [sgd(hvd, str(i), parameter) for i, parameter in enumerate(parameters)]
    for _ in range(3):
        for optimizer in optimizers:
            optimizer.zero_grad()
        sum((parameter * (rank + 1)).sum() for parameter in parameters).backward()
        for i in range(size):
            optimizers[(i + rank) % size].step()
    for parameter in parameters:
        assert torch.equal(parameter.detach(), full(-1.5 * (size + 1)))


def test_other_orders_and_then_ranks_that_lack_gradients(hvd, rank, size):
    """What ranks tell each other in one round does not get into the next one."""
    parameters = [parameter_of(), parameter_of()]
    optimizers = [sgd(hvd, str(i), parameters[i], parameter_of()) for i in range(2)]
    for step in range(6):
        for optimizer in optimizers:
            optimizer.zero_grad()
        lacks = step % 3 == 2
        used = parameters[:1] if lacks and rank == 0 else parameters
        extra = [] if lacks else [optimizer.param_groups[0]["params"][1] for optimizer in optimizers]
        sum((parameter * size).sum() for parameter in [*used, *extra]).backward()
        for optimizer in optimizers if lacks or rank % 2 else optimizers[::-1]:
            optimizer.step()
    assert torch.equal(parameters[0].detach(), full(-6 * size))
    assert torch.equal(parameters[1].detach(), full(-4 * size - 2 * (size - 1)))


def test_optimizers_whose_last_exchange_goes_on_may_be_deleted_and_changed(hvd, rank, size):
    for change in ("delete", "add"):
        parameters = [parameter_of(), parameter_of()]
        optimizers = [sgd(hvd, f"{change} {i}", parameter) for i, parameter in enumerate(parameters)]
        sum(parameter.sum() for parameter in parameters).backward()
        for i in (0, 1) if rank else (1, 0):
            optimizers[i].step()
        if change == "delete":
            del optimizers
        else:
            more = parameter_of()
            optimizers[0].add_param_group({"params": [more]})
            more.sum().backward()
            optimizers[0].step()
            assert torch.equal(more.detach(), full(-1))


# ---- names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["Average", "Adasum"])
def test_an_optimizer_of_the_last_job_and_a_new_one_of_the_same_names(hvd, rank, size, op):
    if op == "Adasum" and size & (size - 1):
        pytest.skip("Adasum needs 2, 4, 8, ... ranks")
    old, new = parameter_of(), parameter_of()
    optimizers = [sgd(hvd, op, old, op=getattr(hvd, op))]
    garbage = sgd(hvd, op, parameter_of(), op=getattr(hvd, op)) if rank == 0 else None
    if garbage is not None:
        garbage.itself = garbage  # lives until the garbage collector runs, on this rank only
    del garbage
    hvd.shutdown()
    hvd.init()
    optimizers.append(sgd(hvd, op, new, op=getattr(hvd, op)))
    names = [optimizer._distributed.names.of("loss") for optimizer in optimizers]
    assert len(set(names)) == 2 and hvd.allgather_object(names) == [names] * size
    for _ in range(2):
        (old * (rank + 1) - new * (rank + 1)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    assert torch.equal(old.detach(), -new.detach()) and torch.equal(hvd.broadcast(old.detach(), 0), old.detach())
    if op == "Average":
        assert torch.equal(old.detach(), full(-(size + 1)))


def test_wrapping_again_changes_the_ranks_and_the_operation(hvd, rank, size, sets):
    parameter = parameter_of()
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    for options in [{}, dict(process_set=sets[rank]), dict(op=hvd.Sum)] * 2:
        optimizer = hvd.DistributedOptimizer(optimizer, [("w", parameter)], **options)
        optimizer.zero_grad()
        (parameter * (rank + 1)).sum().backward()
        optimizer.step()
    mean = (size + 1) / 2
    assert torch.equal(parameter.detach(), full(-2 * (mean + rank + 1 + mean * size)))
