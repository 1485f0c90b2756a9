"""TorchState(live=True) in a process without others: what a commit marks, and what a restore goes back to."""
import copy
import types

import pytest
import torch

import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError
from horovod.torch import _devices
from horovod.torch.elastic import live
from horovod.torch.elastic.handlers import StateHandler, get_handler_registry, set_handler_registry
from horovod.torch.elastic.live import Offer, choose
from horovod.torch.elastic.state import TorchState


@pytest.fixture
def job():
    hvd.init()
    yield
    hvd.shutdown()


# ---- who is chosen ----------------------------------------------------------------------------------------------

NEW = (0, 0, True)
# What the ranks have after a failure: their last commit, their last copy, and whether they made no step since the
# commit. Then the rank from which all go on, its commit, and how many commits are undone.
CHOICES = {
    "a job begins": ([NEW, NEW], 0, 0, 0),
    "all before their step": ([(7, 5, True), (7, 5, True)], 0, 7, 0),
    "the first in its step": ([(7, 5, False), (7, 5, True)], 1, 7, 0),
    "all in their step": ([(7, 5, False), (7, 5, False)], 0, 5, 2),
    "all in their step after a copy": ([(7, 7, False), (7, 7, False)], 0, 7, 0),
    "one is a commit ahead": ([(7, 5, True), (8, 5, True)], 1, 8, 0),
    "one is a step ahead": ([(7, 5, False), (7, 5, True)], 1, 7, 0),
    "one is a commit and a step ahead": ([(8, 5, False), (7, 5, True)], 1, 7, 1),
    "one is a commit ahead, which was copied": ([(8, 8, False), (7, 3, True)], 0, 8, 0),
    "a new rank": ([(7, 5, True), NEW], 0, 7, 0),
    "a new rank is the first": ([NEW, (7, 5, False), (7, 5, False)], 1, 5, 2),
    "a rank that lost its values in a sync": ([(5, 5, False), (9, 5, True)], 1, 9, 0),
    "all but one lost theirs, and it is gone": ([(5, 5, False), (9, 5, False)], 0, 5, 4),
}


@pytest.mark.parametrize("case", CHOICES)
def test_the_latest_commit_that_a_rank_can_give_is_chosen(case):
    ranks, chosen, commit, undone = CHOICES[case]
    offers = [Offer.of(*each) for each in ranks]
    assert choose(offers) == (chosen, undone) and offers[chosen].number == commit


# ---- marks ------------------------------------------------------------------------------------------------------


def training(make=lambda parameters: torch.optim.Adam(parameters, lr=0.1), **options):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    optimizer = make(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    state = TorchState(model, optimizer, live=True, scheduler=scheduler, step=0, **options)
    state._live._has_part = True  # as after the first sync
    for _ in range(2):
        forward(state)
        advance(state)
    state.commit()
    assert state._live._copied < state._live.commit, "the commit was a mark"
    return state


def forward(state):
    state.model(torch.randn(5, 3)).square().sum().backward()


def advance(state):
    state.optimizer.step()
    state.optimizer.zero_grad()
    state.scheduler.step()
    state.step += 1


def values_of(state):
    tensors = [*state.model.state_dict().values()]
    tensors += [value for entry in state.optimizer.state.values() for value in entry.values()]
    return [tensor.clone() for tensor in tensors] + [
        torch.tensor([state.step, state.scheduler.last_epoch, state.optimizer.param_groups[0]["lr"]])]


def are_equal(left, right):
    return len(left) == len(right) and all(map(torch.equal, left, right))


def test_a_restore_before_the_step_keeps_the_tensors_and_takes_back_all_else(job):
    state = training()
    committed = values_of(state)
    places = [tensor.data_ptr() for entry in state.optimizer.state.values() for tensor in entry.values()]
    for _ in range(2):
        forward(state)  # changes the statistics of the BatchNorm
        state.scheduler.step()
        state.step = 9
        assert not are_equal(values_of(state), committed) and state._live.is_kept()
        state.restore()
        assert are_equal(values_of(state), committed)
    assert places == [tensor.data_ptr() for entry in state.optimizer.state.values() for tensor in entry.values()]
    assert state._live.commit == 2


@pytest.fixture
def lost_results(monkeypatch):
    """A rank was lost while a reduction was under way on this rank's GPU."""
    def raise_error():
        raise HorovodInternalError("rank 1 was lost")

    monkeypatch.setattr(_devices, "await_results", raise_error)


def test_a_step_does_not_begin_before_the_results_on_the_gpu_are_there(job, request):
    state = training()
    committed = values_of(state)
    forward(state)
    request.getfixturevalue("lost_results")
    with pytest.raises(HorovodInternalError):
        state.optimizer.step()
    assert state._live.is_kept()
    request.getfixturevalue("monkeypatch").undo()
    state.restore()
    assert are_equal(values_of(state), committed)


@pytest.mark.parametrize("is_live", [True, False])
def test_a_commit_of_results_that_were_lost_on_the_gpu_leaves_the_one_before(job, request, is_live):
    model = torch.nn.Linear(2, 1)
    state = TorchState(model, live=is_live, step=0)
    state.commit()
    committed = model.weight.detach().clone()
    with torch.no_grad():
        model.weight.fill_(float("nan"))
    state.step = 1
    request.getfixturevalue("lost_results")
    with pytest.raises(HorovodInternalError):
        state.commit()
    request.getfixturevalue("monkeypatch").undo()
    state.restore()
    assert torch.equal(model.weight, committed) and state.step == 0


def test_the_gpu_is_waited_for_each_time(job, monkeypatch):
    """An operation that was started before one wait may be synchronized after it: the next wait is for it."""
    waits = []
    monkeypatch.setattr(_devices._own, "_ordinal", 0)
    monkeypatch.setattr(_devices, "current_stream", lambda device: types.SimpleNamespace(
        synchronize=lambda: waits.append(device)))
    _devices.await_results()
    _devices.await_results()
    assert waits == [0, 0]


def of_two(parameters):
    first, *others = parameters
    return torch.optim.SGD([{"params": [first]}, {"params": others, "lr": 0.5}], lr=0.1, momentum=0.9)


OPTIMIZERS = {
    "SGD without state": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "groups": of_two,
    "foreach": lambda parameters: torch.optim.Adam(parameters, lr=0.1, foreach=True),
    "fused, which leaves no trace in versions": lambda parameters: torch.optim.Adam(parameters, lr=0.1, fused=True),
    "distributed": lambda parameters: hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1, momentum=0.9)),
    "Adasum": lambda parameters: hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1), op=hvd.Adasum),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_restore_after_a_step_goes_back_to_the_copy(job, make):
    state = training(make, commits_per_copy=2)
    copied = []
    for _ in range(2):
        forward(state)
        advance(state)
        copied = values_of(state)
        state.commit()
        if state._live._copied == state._live.commit:
            break
    assert state._live._copied == state._live.commit, "the second commit was copied"
    forward(state)
    advance(state)
    state.commit()
    forward(state)
    state.optimizer.step()
    assert not state._live.is_kept()
    state.restore()
    assert are_equal(values_of(state), copied) and state._live.commit == state._live._copied
    state.restore()
    assert are_equal(values_of(state), copied)


def step_another(state):
    other = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(other.parameters(), lr=1.0)
    other(torch.ones(1, 1)).sum().backward()
    optimizer.step()


def change_by_hand(state):
    with torch.no_grad():
        state.model[0].weight.clamp_(-0.01, 0.01)


def replace_data(state):
    state.model[0].weight.data = torch.zeros(4, 3)


def add_a_group(state):
    state.optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})


CHANGES = [step_another, change_by_hand, replace_data, add_a_group,
           lambda state: hvd.broadcast_parameters(state.model.state_dict(), 0),
           lambda state: state.model.load_state_dict(state.model.state_dict()),
           lambda state: state.optimizer.load_state_dict(copy.deepcopy(state.optimizer.state_dict())),
           lambda state: setattr(state, "model", torch.nn.Linear(2, 2)),
           lambda state: setattr(state, "optimizer", torch.optim.SGD(state.model.parameters(), lr=0.1))]


@pytest.mark.parametrize("change", CHANGES, ids=range(len(CHANGES)))
def test_another_change_counts_like_a_step(job, change):
    state = training()
    assert state._live.is_kept()
    change(state)
    assert not state._live.is_kept()
    state.save()
    assert state._live.is_kept()


def test_a_rank_that_goes_back_to_a_copy_tells_how_far_it_had_come(job):
    """Or else horovodrun would take failures at different steps for the same one that happens again."""
    told = []
    for commits in (1, 4):
        state = training()
        for _ in range(commits):
            state.commit()
        forward(state)
        advance(state)
        state.restore()
        told.append(state._progress())
    assert told[0] < told[1]
    kept = training()
    kept.restore()
    ahead = training()
    ahead.commit()
    advance(ahead)
    ahead.restore()
    assert kept._progress() > ahead._progress() > kept._saves


def test_an_assigned_value_is_copied_by_the_next_commit(job):
    state = training()
    state.model = torch.nn.Linear(3, 1)
    assigned = [tensor.clone() for tensor in state.model.state_dict().values()]
    state.commit()
    assert state._live._copied == state._live.commit
    torch.nn.init.zeros_(state.model.weight)
    state.restore()
    assert are_equal(list(state.model.state_dict().values()), assigned)


def test_a_copy_that_was_interrupted_is_not_restored(job):
    state = training(commits_per_copy=2)

    def fail():
        raise MemoryError

    state._live._copies["scheduler"].save = fail
    with pytest.raises(MemoryError):
        state.save()
    state.optimizer.step()
    with pytest.raises(RuntimeError, match="the last copy was interrupted"):
        state.restore()


@pytest.mark.parametrize("save", [TorchState.save, TorchState.sync])
def test_a_commit_whose_copy_is_interrupted_is_restored_from_its_mark(job, monkeypatch, save):
    def interrupt():
        raise KeyboardInterrupt

    state = training()
    committed = values_of(state)
    state._live._must_copy = True
    monkeypatch.setattr(state._live._copies["scheduler"], "save", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(state)
    state.step = 9
    state.restore()
    assert are_equal(values_of(state), committed)


def test_a_restore_that_is_interrupted_leaves_no_mark(job, monkeypatch):
    def interrupt():
        raise KeyboardInterrupt

    state = training(commits_per_copy=2)
    state.commit()  # a copy
    copied = values_of(state)
    state.scheduler.step()
    state.save()
    change_by_hand(state)
    state._handlers["scheduler"] = state._handlers.pop("scheduler")  # after those that see the change
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(state._live._handlers["scheduler"], "save", interrupt)
        state.restore()
    state.restore()
    assert are_equal(values_of(state), copied)


def test_steps_of_a_graph_are_not_seen_so_commits_copy(job, monkeypatch):
    state = training()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.warns(UserWarning, match="captured in a graph"):
        live._note_step()
    state.commit()
    assert state._live._copied == state._live.commit
    committed = values_of(state)
    state.model[0].weight.data.zero_()  # leaves no trace in versions, as a step of a graph
    state.restore()
    assert are_equal(values_of(state), committed)


def test_what_a_live_state_cannot_follow_is_named():
    class Handler(StateHandler):
        def save(self):
            pass

    registry = get_handler_registry()
    try:
        set_handler_registry([(list, Handler), *registry])
        with pytest.raises(ValueError, match=r"found 'losses' with a handler of its own \(Handler\)"):
            TorchState(losses=[], live=True)
        Handler.follows_root = True
        TorchState(losses=[], live=True)
    finally:
        set_handler_registry(registry)
    with pytest.raises(ValueError, match="commits_per_copy: expected a number of commits, found 0"):
        TorchState(live=True, commits_per_copy=0)
