"""hvd.elastic in jobs whose ranks all stay: training goes on after failures, with the same numbers on all ranks."""
import random
import warnings

import pytest
import torch

from horovod.common import elastic
from horovod.runner.elastic.worker import HostUpdateResult

BATCH, SAMPLES, EPOCHS = 2, 24, 2
INPUTS = torch.randn(SAMPLES, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
TARGETS = torch.randn(SAMPLES, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


class Program:
    """A user's elastic program. `fail(state)` is called before each step, and may fail."""

    def __init__(self, hvd, fail=lambda state: None, live=False, **options):
        torch.manual_seed(hvd.rank())  # the ranks begin with different values
        model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1)).double()
        model[1].eval()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
                                             model.named_parameters(), **options)
        self.state = hvd.elastic.TorchState(
            model, optimizer, sampler=hvd.elastic.ElasticSampler(range(SAMPLES), seed=3), epoch=0, batch=0,
            scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5), live=live)
        self._commit_after = 1 if live else 2
        self.rounds, self.used, self._fail = 0, [], fail

    def run(self, hvd):
        hvd.elastic.run(self._train)(self.state)
        return self._numbers()

    def _train(self, state):
        self.rounds += 1
        while state.epoch < EPOCHS:
            for indices in torch.utils.data.BatchSampler(state.sampler, BATCH, drop_last=False):
                loss = (state.model(INPUTS[indices]) - TARGETS[indices]).square().mean()
                loss.backward()
                self._fail(state)
                state.optimizer.step()
                state.optimizer.zero_grad()  # at the end: gradients of a step that failed are not removed here
                state.sampler.record_batch(state.batch, BATCH)
                state.batch += 1
                self.used.append(indices)
                if state.batch % self._commit_after == 0:
                    state.commit()
            state.scheduler.step()
            state.epoch, state.batch = state.epoch + 1, 0
            state.sampler.set_epoch(state.epoch)
            state.commit()

    def _numbers(self):
        momenta = [entry["momentum_buffer"] for entry in self.state.optimizer.state.values()]
        return [*self.state.model.state_dict().values(), *momenta,
                torch.tensor(self.state.scheduler.get_last_lr(), dtype=torch.float64)]


class Once:
    """Fails at one step of one epoch, once, in the way that `how` tells."""

    def __init__(self, epoch, batch, how):
        self._at, self._how, self.times = (epoch, batch), how, 0

    def __call__(self, state):
        if (state.epoch, state.batch) == self._at and self.times == 0:
            self.times += 1
            self._how()


def fail_on_all_ranks(hvd):
    """All ranks fail in the same operation. A rank that raised an error by itself might be ahead of the others."""
    hvd.allreduce(torch.ones(2 + hvd.rank() % 2), name="of different shapes")
    if hvd.size() == 1:
        raise hvd.HorovodInternalError("nobody is there to disagree with")


def are_equal(left, right):
    return len(left) == len(right) and all(map(torch.equal, left, right))


def check_against_undisturbed(hvd, fail, **options):
    """After a failure all ranks have the bits that they would have had without it."""
    disturbed, undisturbed = Program(hvd, fail, **options), Program(hvd, **options)
    found = disturbed.run(hvd)
    assert fail.times == 1 and disturbed.rounds == 2
    assert all(are_equal(found, others) for others in hvd.allgather_object(found))
    assert are_equal(found, undisturbed.run(hvd)) and undisturbed.rounds == 1
    return disturbed, undisturbed


@pytest.mark.parametrize("options", [{}, {"gradient_views": True}, {"groups": 2}], ids=str)
def test_training_goes_on_after_a_mismatch(hvd, rank, capfd, options):
    fail = Once(1, 1, lambda: fail_on_all_ranks(hvd))
    disturbed, undisturbed = check_against_undisturbed(hvd, fail, **options)
    assert len(disturbed.used) == len(undisturbed.used) + 1  # the step between the commit and the failure
    assert ("training begins again, reset 1" in capfd.readouterr().err) is (rank == 0)


def test_training_goes_on_after_one_rank_failed(hvd, rank, size):
    """The others learn of it by their own operations, which may be of a later step."""
    def fail_alone():
        if rank == size - 1:
            raise hvd.HorovodInternalError("the device of this rank failed")

    check_against_undisturbed(hvd, Once(0, 2, fail_alone))


@pytest.mark.parametrize("who", ["all", "the first"])
def test_a_live_state_goes_on_from_a_rank_that_made_no_step_since_its_commit(hvd, rank, size, who):
    """A rank that fails alone is before its step, while the others make it and are a commit ahead."""
    if who == "the first" and size != 2:
        pytest.skip("it takes seconds, and two ranks show it")

    def fail():
        if who == "all":
            fail_on_all_ranks(hvd)
        elif rank == 0:
            raise hvd.HorovodInternalError("the device of this rank failed")

    disturbed, undisturbed = check_against_undisturbed(hvd, Once(1, 2, fail), live=True)
    assert disturbed.state._live.commit == undisturbed.state._live.commit
    made = hvd.allgather_object(len(disturbed.used) - len(undisturbed.used), name="steps made twice")
    assert set(made) <= {0, -1}, "the failed rank did not make the step that the others had made"


def test_a_live_state_goes_back_to_its_copy_if_all_ranks_have_made_a_step(hvd, rank, capfd):
    calls = []

    def fail(state):
        calls.append(state.batch)
        if len(calls) == 3:
            state.optimizer.step()  # of the gradients of this batch
            fail_on_all_ranks(hvd)

    program = Program(hvd, fail, live=True)
    found = program.run(hvd)
    assert are_equal(found, Program(hvd, live=True).run(hvd))
    assert calls[:6] == [0, 1, 2, 0, 1, 2]
    assert ("from an earlier one (2 before)" in capfd.readouterr().err) is (rank == 0)


def test_what_rank_0_is_told_of_hosts_interrupts_all_at_the_same_step(hvd, rank):
    program = None

    def tell():
        if rank == 0:
            program.state.on_hosts_updated(1, HostUpdateResult.added)
        else:
            program.state.on_hosts_updated(5, HostUpdateResult.removed)  # nobody else counts

    fail = Once(0, 1, tell)
    program = Program(hvd, fail)
    found = program.run(hvd)
    assert program.rounds == 2 and program.state._last_updated_timestamp == 1
    assert are_equal(found, Program(hvd).run(hvd))


def test_a_training_that_was_disturbed_has_the_numbers_of_one_process(hvd, size):
    found = Program(hvd, Once(0, 1, lambda: fail_on_all_ranks(hvd))).run(hvd)[:6]
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1)).double()
    model[1].eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(EPOCHS):
        order = list(range(SAMPLES))
        random.Random(3 + epoch).shuffle(order)
        for first in range(0, SAMPLES, BATCH * size):
            # the rows of all ranks' batches of this step
            rows = order[first:first + BATCH * size]
            optimizer.zero_grad()
            (model(INPUTS[rows]) - TARGETS[rows]).square().mean().backward()
            optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] *= 0.5
    expected = list(model.state_dict().values())[:6]
    assert all(torch.allclose(left, right) for left, right in zip(found, expected))


def test_a_commit_between_two_passes_of_a_step_is_named(hvd, monkeypatch):
    model = torch.nn.Linear(2, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), backward_passes_per_step=2)
    state = hvd.elastic.TorchState(model, optimizer)
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", lambda message, *_: found.append(str(message)))
        monkeypatch.setattr(elastic.State, "_has_warned", False)
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            state.commit()
            optimizer.zero_grad()
            state.commit()
        assert found == []
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
            state.commit()
    assert len(found) == 1 and "commit between two steps of the optimizer: found 1 of 2 backward passes" in found[0]
    optimizer.step()


def test_process_sets_are_there_after_a_reset(hvd, rank, size):
    if size == 1:
        pytest.skip("a job of one rank has no other sets")
    hvd.barrier()
    hvd.shutdown()
    evens, odds = hvd.ProcessSet(range(0, size, 2)), hvd.ProcessSet(range(1, size, 2))
    hvd.init(process_sets=[evens, odds])
    mine, rounds = (odds if rank % 2 else evens), []

    @hvd.elastic.run
    def train(state):
        rounds.append(1)
        found = hvd.allreduce(torch.ones(1), op=hvd.Sum, name="in the set", process_set=mine)
        if len(rounds) == 1:
            fail_on_all_ranks(hvd)
        return found

    assert train(hvd.elastic.TorchState(epoch=0)).item() == len(range(rank % 2, size, 2)) == mine.size()
    hvd.barrier()
    hvd.shutdown()


def test_a_failure_that_comes_again_ends_the_loop_on_all_ranks(hvd):
    rounds = []

    @hvd.elastic.run
    def train(state):
        rounds.append(1)
        fail_on_all_ranks(hvd)

    with pytest.raises(hvd.HorovodInternalError, match="3 failures in a row"):
        train(hvd.elastic.TorchState(epoch=0))
    assert len(rounds) == 3
