"""The extension remembers operations for each process set, and forgets them when the set is removed."""
import weakref

import pytest
import torch
from sets import halves, in_a_job_of_its_own, own, process_sets

from horovod import _core, _ops


def test_one_name_in_several_sets_at_once_and_again(hvd, rank, size):
    with process_sets(*halves(size)) as sets:
        mine = own(sets)
        for step in range(4):
            for _ in range(2):
                in_set = hvd.allreduce_async(torch.full((3,), rank + 1.0), op=hvd.Sum, name="both", process_set=mine)
                in_all = hvd.allreduce_async(torch.full((3,), rank + 1.0), op=hvd.Sum, name="both")
                total = float(sum(other + 1 for other in mine.ranks))
                assert torch.equal(hvd.synchronize(in_set), torch.full((3,), total)), step
                assert torch.equal(hvd.synchronize(in_all), torch.full((3,), size * (size + 1) / 2))


def test_a_known_operation_of_a_set_is_started_by_what_is_known(hvd, size):
    with process_sets(*halves(size)) as sets:
        mine, x = own(sets), torch.ones(3)
        how = (True, "known", hvd.Sum, 1.0, 1.0)
        assert _core.start_again(x, *how, mine) is None
        hvd.allreduce_(x, op=hvd.Sum, name="known", process_set=mine)
        hvd.allreduce_(x, op=hvd.Sum, name="known")
        for process_set in (mine, hvd.global_process_set):
            handle = _core.start_again(x, *how, process_set)
            assert handle is not None and hvd.synchronize(handle) is x


def test_a_set_that_was_removed_and_added_again_is_another_one(hvd, rank, size):
    with in_a_job_of_its_own():
        made = hvd.ProcessSet([0])
        for ranks in ([0], list(range(size - 1)) if size > 2 else [1], [0]):
            made.ranks = ranks
            hvd.add_process_set(made)
            for _ in range(3):
                if made.included():
                    for name in ("again", None):
                        result = hvd.allreduce(torch.ones(2), op=hvd.Sum, name=name, process_set=made)
                        assert torch.equal(result, torch.full((2,), float(len(ranks))))
                    assert hvd.reducescatter(torch.ones(len(ranks)), op=hvd.Sum, name="again",
                                             process_set=made).tolist() == [len(ranks)]
            hvd.remove_process_set(made)
            with pytest.raises(TypeError, match="is not registered"):
                hvd.allreduce(torch.ones(2), op=hvd.Sum, name="again", process_set=made)


def test_operations_without_a_name_are_counted_in_each_set(hvd, rank, size):
    with process_sets(*halves(size)) as sets:
        for _ in range(rank + 1 if rank % 2 == 0 and size == 2 else 3 if rank % 2 else 1):
            hvd.allreduce(torch.ones(1), process_set=own(sets))
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == size


def test_sets_end_with_their_job(hvd, size):
    first = hvd.ProcessSet([0])
    with in_a_job_of_its_own([first]):
        assert first.process_set_id == 1
        hvd.init(process_sets=[first])
        assert first.process_set_id == 1
        with pytest.raises(KeyError, match="add_process_set"):
            hvd.init(process_sets=[hvd.ProcessSet([size - 1])])
        with pytest.raises(ValueError, match="HOROVOD_DYNAMIC_PROCESS_SETS"):
            hvd.remove_process_set(first)
        assert first.process_set_id == 1
    assert first.process_set_id is None and first.ranks == [0]


def test_a_job_of_many_sets_forgets_what_it_prepared(hvd, size):
    with in_a_job_of_its_own():
        for _ in range(20):
            made = hvd.add_process_set([0])
            if made.included():
                hvd.allreduce_(torch.ones(1), name="x", process_set=made)
            hvd.remove_process_set(made)
            assert not any(key[1] == 1 for key in _ops.operations if isinstance(key, tuple) and key[0] == "x")
            gone = weakref.ref(made)
            del made
            assert gone() is None


def test_every_verb_in_a_set_is_differentiable(hvd, rank, size):
    with process_sets(*halves(size)) as sets:
        mine = own(sets)
        n = mine.size()

        def leaf():
            return torch.full((2 * n,), rank + 1.0, requires_grad=True)

        x = leaf()
        hvd.allreduce(x, op=hvd.Sum, process_set=mine).sum().backward()
        assert torch.equal(x.grad, torch.full((2 * n,), float(n)))
        x = leaf()
        hvd.allgather(x, process_set=mine).sum().backward()
        assert torch.equal(x.grad, torch.ones(2 * n))
        x = leaf()
        hvd.broadcast(x, mine.ranks[-1], process_set=mine).sum().backward()
        assert torch.equal(x.grad, torch.full((2 * n,), float(rank == mine.ranks[-1])))
        x = leaf()
        (hvd.alltoall(x, process_set=mine) * (mine.rank() + 1)).sum().backward()
        assert x.grad.tolist() == [receiver + 1.0 for receiver in range(n) for _ in range(2)]
        x = leaf()
        hvd.reducescatter(x, op=hvd.Sum, process_set=mine).sum().backward()
        assert torch.equal(x.grad, torch.full((2 * n,), float(n)))


@pytest.mark.parametrize("options", [{}, dict(groups=2), dict(backward_passes_per_step=2), dict(compression="bf16")],
                         ids=str)
def test_an_optimizer_of_a_set_is_that_of_one_process_with_its_batch(hvd, rank, size, options):
    options = {name: getattr(hvd.Compression, value) if name == "compression" else value
               for name, value in options.items()}
    with process_sets(*halves(size)) as sets:
        mine = own(sets)
        passes = options.get("backward_passes_per_step", 1)

        def train(ranks, wrap):
            torch.manual_seed(mine.ranks[0])
            model = torch.nn.Linear(3, 2).double()
            optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model)
            for step in range(4):
                optimizer.zero_grad()
                for turn in range(passes):
                    seeds = [100 * step + 10 * turn + of for of in ranks]
                    x = torch.cat([torch.randn(2, 3, generator=torch.Generator().manual_seed(seed)) for seed in seeds])
                    (model(x.double()) ** 2).sum(1).mean().backward()
                optimizer.step()
            return [parameter.detach() for parameter in model.parameters()]

        expected = train(mine.ranks, lambda optimizer, model: optimizer)
        found = train([rank], lambda optimizer, model: hvd.DistributedOptimizer(
            optimizer, model.named_parameters(), process_set=mine, **options))
        tolerance = dict(rtol=1e-2, atol=1e-2) if "compression" in options else dict(rtol=1e-9, atol=1e-12)
        for ours, theirs in zip(found, expected):
            torch.testing.assert_close(ours, theirs, **tolerance)


def test_optimizers_of_overlapping_sets_have_parameters_of_the_same_names(hvd, rank, size):
    """A rank in more sets makes more optimizers than the others. Optimizers are told apart by their process set, not by
    the order in which a rank made them."""
    with process_sets([0], [size - 1]) as sets:
        everywhere = [each for each in (*sets, hvd.global_process_set) if each.included()]
        for _ in range(2):
            for process_set in everywhere:
                parameter = torch.nn.Parameter(torch.zeros(2))
                optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), [("same", parameter)],
                                                     process_set=process_set)
                (parameter * (rank + 1)).sum().backward()
                optimizer.step()
                mean = sum(other + 1 for other in process_set.ranks) / process_set.size()
                assert torch.equal(parameter.detach(), torch.full((2,), -mean))


def test_to_who_is_not_in_the_set_the_optimizer_is_a_plain_one(hvd, rank, size):
    with process_sets([0]) as (first,):
        parameter = torch.nn.Parameter(torch.zeros(2))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), [("p", parameter)],
                                             process_set=first, groups=1)
        (parameter * (rank + 1)).sum().backward()
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()
        optimizer.zero_grad()
        assert torch.equal(parameter.detach(), torch.full((2,), -(rank + 1.0))) and optimizer.process_set is first


def test_what_an_optimizer_refuses_of_a_set(hvd, rank, size):
    with process_sets([0]) as (first,):
        parameter = torch.nn.Parameter(torch.zeros(2))

        def wrap(**options):
            return hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), [("p", parameter)], **options)

        with pytest.raises(NotImplementedError, match="global process set"):
            wrap(process_set=first, op=hvd.Adasum)
        with pytest.raises(ValueError, match="gradient_views"):
            wrap(process_set=first, gradient_views=True)
        with pytest.raises(TypeError, match="is not registered"):
            wrap(process_set=hvd.ProcessSet([rank]))
