"""hvd.elastic in a process without others: what is saved, what a round begins with, and when the loop gives up."""
import collections
import itertools
import math
import random
import sys

import numpy
import pytest
import torch

import horovod.torch as hvd
from horovod._keras.elastic import ModelState
from horovod.common import elastic
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.runner.elastic.constants import RESET_LIMIT_EXCEEDED_MESSAGE
from horovod.runner.elastic.worker import HostUpdateResult
from horovod.torch.elastic import sampler as sampler_module
from horovod.torch.elastic import handlers as handlers_module
from horovod.torch.elastic import state as state_module
from horovod.torch.elastic.state import StateHandler, TorchState, get_handler_registry, set_handler_registry


@pytest.fixture
def job():
    hvd.init()
    yield
    hvd.shutdown()


def object_state(**values):
    return elastic.ObjectState(bcast_object=lambda thing, **_: thing, get_rank=lambda: 0, **values)


def trained(steps=1, **options):
    """A model and its optimizer after some steps."""
    torch.manual_seed(3)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, **options)
    step(model, optimizer, steps)
    return model, optimizer


def step(model, optimizer, steps=1):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(4, 3)).square().sum().backward()
        optimizer.step()


def values_of(model, optimizer):
    state = [entry for parameter in model.parameters() for entry in optimizer.state.get(parameter, {}).values()]
    return [tensor.clone() for tensor in [*model.state_dict().values(), *state]]


def are_equal(left, right):
    return len(left) == len(right) and all(map(torch.equal, left, right))


# ---- interrupts -------------------------------------------------------------------------------------------------


def is_interrupted(number, call):
    """Calls it, with a KeyboardInterrupt at that instruction of a state's own. Returns False if it has fewer."""
    modules = (elastic.__name__, ModelState.__module__, TorchState.__module__)
    instructions = itertools.count(1)

    def trace(frame, event, _):
        if frame.f_globals["__name__"] not in modules:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and next(instructions) == number:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
        torch.set_grad_enabled(True)  # also where no_grad() was interrupted before its end
    return False


class Variable:
    def __init__(self, value):
        self.assign(value)

    def numpy(self):
        return self.value

    def assign(self, value):
        self.value = numpy.array(value)


class Network:
    """A model of Keras, as far as a state uses it."""
    built = True

    def __init__(self):
        self.weights = [Variable(0), Variable(0)]


def keras_state():
    return ModelState(Network(), step=0, seen=[0])


def set_keras(state, number):
    for each in state.model.weights:
        each.assign(number)


def torch_state(**options):
    return TorchState(torch.nn.Linear(2, 1), first=Holder(step=0), step=0, seen=[0], **options)


def set_torch(state, number):
    torch.nn.init.constant_(state.model.weight, number)
    torch.nn.init.constant_(state.model.bias, number)
    state.first.state = {"step": number}


def numbers_of(state):
    own = [each.numpy() for each in state.model.weights] if isinstance(state, ModelState) else \
        [*state.model.weight.flatten().tolist(), state.model.bias.item(), state.first.state["step"]]
    return {int(each) for each in [*own, state.step, *state.seen]}


STATES = {"keras": (keras_state, set_keras), "torch": (torch_state, set_torch)}


def set_all(state, number, set_objects):
    set_objects(state, number)
    state.step, state.seen[:] = number, [number]


@pytest.mark.parametrize("kind", STATES)
def test_a_commit_that_is_interrupted_anywhere_is_restored_whole_or_not_at_all(kind):
    """Only models and optimizers of torch are copied into the memory of the commit before."""
    (make, set_objects), found = STATES[kind], set()
    for number in itertools.count(1):
        state = make()
        set_all(state, 1, set_objects)
        state.save()
        set_all(state, 2, set_objects)
        if not is_interrupted(number, state.save):
            break
        set_all(state, 3, set_objects)
        try:
            state.restore()
        except RuntimeError:
            assert kind == "torch" and numbers_of(state) == {3}
        found.add(tuple(numbers_of(state)))
    assert found == {(1,), (2,), (3,)} if kind == "torch" else found == {(1,), (2,)}


@pytest.mark.parametrize("kind", STATES)
def test_a_sync_that_is_interrupted_anywhere_is_restored_whole_or_not_at_all(kind, monkeypatch):
    (make, set_objects), found = STATES[kind], set()

    def of_rank_0(values, *_, **__):
        set_objects(state, 2)  # the objects come before the attributes
        return {**values, "step": 2, "seen": [2]}

    for handler in (handlers_module.StateDictHandler, handlers_module.ModelStateHandler):
        monkeypatch.setattr(handler, "sync", lambda handler: None)
    monkeypatch.setattr(TorchState, "_check_kinds", lambda *_: None)
    for number in itertools.count(1):
        state = make()
        set_all(state, 1, set_objects)
        state.save()
        state._bcast_object = of_rank_0
        if not is_interrupted(number, state.sync):
            break
        set_all(state, 3, set_objects)
        try:
            state.restore()
        except RuntimeError:
            assert kind == "torch" and numbers_of(state) == {3}
        found.add(tuple(numbers_of(state)))
    assert found == {(1,), (2,), (3,)} if kind == "torch" else found == {(1,), (2,)}


# ---- the loop ---------------------------------------------------------------------------------------------------


def rounds_of(state, events, reset=lambda: None):
    """Runs a training of which each round raises the next event. Returns the epochs with which the rounds began."""
    began = []

    def train(state):
        began.append(state.epoch)
        event = next(events, None)
        state.epoch += 10
        if isinstance(event, str):
            raise HorovodInternalError(event)
        if event is not None:
            raise event
        return "done"

    assert elastic.run_fn(train, reset)(state) == "done"
    return began


def test_a_failure_goes_back_and_an_update_goes_on():
    """Also what was set after the state was made, and what was not committed before the update."""
    state = object_state(epoch=0)
    state.epoch = 1
    assert rounds_of(state, iter(["lost", HostsUpdatedInterrupt(), HostsUpdatedInterrupt(skip_sync=True)])) == [
        1, 1, 11, 21]


def test_a_failure_after_an_update_does_not_go_back_behind_it():
    assert rounds_of(object_state(epoch=0), iter([HostsUpdatedInterrupt(), "lost"])) == [0, 10, 10]


def test_a_failure_of_the_synchronisation_is_one_like_others():
    state = object_state(epoch=5)
    failures, sync = [HorovodInternalError("in the broadcast")], state.sync

    def fail_once():
        if failures:
            raise failures.pop()
        sync()

    state.sync = fail_once
    assert rounds_of(state, iter([])) == [5]


def test_three_failures_without_a_commit_between_end_the_loop(capfd):
    with pytest.raises(HorovodInternalError, match="3 failures in a row, without a commit between.* the shapes differ"):
        rounds_of(object_state(epoch=0), iter(["a mismatch", "a mismatch", "the shapes differ"]))
    assert capfd.readouterr().err.count("training begins again") == 2
    assert len(rounds_of(object_state(epoch=0), iter(["one", "two", HostsUpdatedInterrupt()] * 3))) == 10


@pytest.mark.parametrize("ranks, lines", [((0, 0), 1), ((0, 2), 0), ((2, 0), 1), ((2, 1), 0), ((0, None), 0)])
@pytest.mark.parametrize("event", ["lost", HostsUpdatedInterrupt()], ids=["failure", "update"])
def test_a_reset_of_an_elastic_job_is_told_once_by_rank_0_of_the_next_world(event, ranks, lines, monkeypatch, capfd):
    """One of the ranks before it or after it is rank 0, whoever leaves."""
    now = [ranks[0]]
    monkeypatch.setattr(elastic._core, "elastic_facts", lambda: (1, 0))
    monkeypatch.setattr(elastic._core, "has_place", lambda: True)
    monkeypatch.setattr(elastic._core, "world", lambda: (now[0], 3))
    monkeypatch.setattr(elastic._core, "take_hosts_updated", lambda: None)

    def reset():
        if ranks[1] is None:
            raise HorovodInternalError("this process is no part of the job any more")
        now[0] = ranks[1]

    try:
        rounds_of(object_state(epoch=0), iter([event]), reset)
    except HorovodInternalError:
        assert ranks[1] is None
    assert capfd.readouterr().err.count("training begins again, reset 1") == lines


def test_commits_between_failures_keep_the_loop_going():
    state, rounds = object_state(epoch=0), []

    @(lambda train: elastic.run_fn(train, lambda: None))
    def train(state):
        rounds.append(state.epoch)
        if state.epoch < 5:
            state.epoch += 1
            state.commit()
            raise HorovodInternalError("again")

    train(state)
    assert rounds == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("limit", [0, 1])
def test_the_limit_of_resets(monkeypatch, limit):
    monkeypatch.setenv("HOROVOD_ELASTIC_RESET_LIMIT", str(limit))
    events = [HostsUpdatedInterrupt() if number % 2 else f"failure {number}" for number in range(limit + 1)]
    assert len(rounds_of(object_state(epoch=0), iter(events[:limit]))) == limit + 1
    with pytest.raises(RuntimeError) as found:
        rounds_of(object_state(epoch=0), iter(events))
    assert str(found.value) == RESET_LIMIT_EXCEEDED_MESSAGE.format(limit)


def test_a_process_that_joins_while_others_are_in_another_function_is_told_so(monkeypatch):
    monkeypatch.setattr(elastic._core, "elastic_facts", lambda: (1, 1))

    def state_where(function_of_the_others):
        return elastic.ObjectState(bcast_object=lambda thing, **_: function_of_the_others(thing), get_rank=lambda: 0,
                                   epoch=0)

    def train(state):
        return "trained"

    later = state_where(lambda thing: thing.replace("train", "tune") if isinstance(thing, str) else thing)
    with pytest.raises(ValueError, match=r"of the other ranks, .*\.tune, found .*\.train: put the trainings of"):
        elastic.run_fn(train, lambda: None)(later)
    same = state_where(lambda thing: thing)  # such as the same function in a loop over folds, of which some are done
    assert [elastic.run_fn(train, lambda: None)(same) for _ in range(2)] == ["trained"] * 2


def test_a_restore_gives_a_copy_where_a_value_has_another_form_than_at_the_commit():
    array, view_of, total = numpy.arange(6.0), bytearray(b"abc"), torch.ones(2, 3)
    state = TorchState(array=array, read_only=numpy.ones(2), bytes=view_of, total=total, scalar=torch.zeros(()))
    weight = torch.ones((), requires_grad=True)
    state.scalar += weight * 2
    state.save()
    view = memoryview(view_of)
    array.shape = (2, 3)
    state.read_only.flags.writeable = False
    view_of[0] = 0
    total.t_()
    state.scalar += weight * 2
    state.restore()
    assert state.array.shape == (6,) and state.read_only.flags.writeable and state.bytes == b"abc" and len(view) == 3
    assert state.total.shape == (2, 3) and state.scalar.item() == 2


def test_a_restore_takes_optimizers_whose_state_has_a_layout_of_their_own():
    class Around(torch.optim.SGD):
        def state_dict(self):
            return {"base": super().state_dict(), "k": 5}

        def load_state_dict(self, state):
            super().load_state_dict(state["base"])

    model = torch.nn.Linear(1, 1)
    state = TorchState(optimizer=Around(model.parameters(), lr=0.5))
    state.optimizer.param_groups[0]["lr"] = 1.0
    state.restore()
    assert state.optimizer.param_groups[0]["lr"] == 0.5


def test_a_listener_hears_of_hosts_while_it_trains():
    state = object_state(epoch=0)

    @(lambda train: elastic.run_fn(train, lambda: None))
    def train(state):
        if state.epoch == 0:
            state.epoch = 1
            elastic.notification_manager.handle_hosts_updated(7, HostUpdateResult.added)
            state.commit()

    train(state)
    assert state.epoch == 1 and state._last_updated_timestamp == 7
    elastic.notification_manager.handle_hosts_updated(8, HostUpdateResult.added)
    state.commit()


def test_a_job_of_one_rank_begins_again(job):
    state, failures, called = TorchState(epoch=0), ["lost"], []
    state.register_reset_callbacks([lambda: called.append(hvd.size())])

    @hvd.elastic.run
    def train(state):
        """What it is for."""
        state.epoch += 1
        if failures:
            raise HorovodInternalError(failures.pop())
        return hvd.allreduce(torch.ones(2), name="anew")

    assert train.__name__ == "train" and train.__doc__ == "What it is for."
    assert torch.equal(train(state), torch.ones(2)) and called == [1] and state.epoch == 1


def test_a_program_without_a_job_is_told_so():
    with pytest.raises(ValueError, match="use hvd.init()"):
        hvd.elastic.run(lambda state: None)(TorchState(epoch=0))


def test_a_method_is_told_how_it_gets_its_state(job):
    class Trainer:
        def train(self, state, steps):
            return self, state.epoch, steps

        decorated = hvd.elastic.run(train)

    trainer, state = Trainer(), TorchState(epoch=3)
    with pytest.raises(TypeError, match=r"expected a state.* of train, found Trainer\. .*run\(self\.train\)\(state\)"):
        trainer.decorated(state, 5)
    with pytest.raises(TypeError, match=r"of train, found Trainer\. .*run\(self\.train\)\(state\), which passes"):
        trainer.decorated(state=state, steps=5)
    assert hvd.elastic.run(trainer.train)(state, 5) == (trainer, 3, 5)
    assert hvd.elastic.run(trainer.train)(steps=5, state=state) == (trainer, 3, 5)
    assert hvd.elastic.run(lambda of_mine: of_mine.epoch)(of_mine=state) == 3
    with pytest.raises(TypeError, match="expected a state.*, found dict$"):
        hvd.elastic.run(lambda state: None)({})
    with pytest.raises(TypeError, match="expected a state.*, found none$"):
        hvd.elastic.run(lambda state: None)()


def test_a_method_that_takes_no_state_is_told_how_it_gets_one(job):
    class Trainer:
        @hvd.elastic.run
        def train(self):
            return self.state.epoch

    with pytest.raises(TypeError, match=r"found Trainer\. .*run\(self\.train\)\(state\), which passes the state after"):
        Trainer().train()


def test_a_job_of_chosen_processes_is_refused():
    hvd.init(comm=[0])
    try:
        with pytest.raises(ValueError, match=r"found a job of hvd.init\(comm=...\)"):
            hvd.elastic.run(lambda state: None)(TorchState(epoch=0))
    finally:
        hvd.shutdown()
    hvd.init()
    hvd.elastic.run(lambda state: None)(TorchState(epoch=0))
    hvd.shutdown()


def test_ranks_that_do_not_meet_again_are_told_what_to_do(job, monkeypatch):
    def not_met(*_, **__):
        raise ValueError("rank 1 was killed; another process cannot take its place")

    state = TorchState(epoch=0)
    monkeypatch.setattr(hvd._job._basics, "init", not_met)

    @hvd.elastic.run
    def train(state):
        raise HorovodInternalError("a rank is lost")

    with pytest.raises(HorovodInternalError,
                       match=r"(?s)rank 1 was killed.*replaced only in.*code 0.* in none.*Start the job again.*"
                             r"because: a rank is lost"):
        train(state)


def test_in_an_elastic_job_a_failed_write_does_not_keep_its_rank_away(monkeypatch, capsys):
    class Basics:
        listed_sets, begins = None, []

        def shutdown(self):
            raise OSError("no room")

        def init(self, process_sets):
            self.begins.append(process_sets)

    monkeypatch.setattr(elastic._core, "elastic_facts", lambda: (1, 0))
    elastic.begin_again(Basics())
    assert Basics.begins == [None] and "a checkpoint could not be written: no room" in capsys.readouterr().err
    monkeypatch.setattr(elastic._core, "elastic_facts", lambda: None)
    with pytest.raises(OSError, match="no room"):
        elastic.begin_again(type("Alone", (Basics,), {"_get_process_set_ids_and_ranks": lambda self: {}})())


# ---- states of torch --------------------------------------------------------------------------------------------


def test_a_restore_gives_back_model_optimizer_and_attributes_every_time(job):
    model, optimizer = trained()
    state = TorchState(model, optimizer, epoch=1, scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 1))
    before = values_of(model, optimizer)
    for _ in range(2):  # what a restore has loaded must not change when the training goes on
        step(model, optimizer, 2)
        state.epoch, optimizer.param_groups[0]["lr"] = 9, 0.7
        state.scheduler.last_epoch = 4
        assert not are_equal(values_of(model, optimizer), before)
        state.restore()
        assert are_equal(values_of(model, optimizer), before)
        assert (state.epoch, optimizer.param_groups[0]["lr"], state.scheduler.last_epoch) == (1, 0.1, 0)


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
def test_a_restore_keeps_the_types_of_the_optimizers_state(job, kind, live):
    model = torch.nn.Linear(3, 2).to(kind)
    optimizer = torch.optim.NAdam(model.parameters(), lr=0.1)  # its products of momenta are of float32

    def advance():
        model(torch.ones(4, 3, dtype=kind)).square().sum().backward()
        optimizer.step()

    advance()
    state = TorchState(model, optimizer, live=live)
    before = values_of(model, optimizer)
    advance()
    state.restore()
    after = values_of(model, optimizer)
    assert [each.dtype for each in after] == [each.dtype for each in before] and are_equal(after, before)


@pytest.mark.parametrize("live", [False, True])
def test_a_restore_undoes_what_was_appended_and_added_in_place(job, live):
    def advance():
        state.losses.append(1)
        state.losses += [2]
        state.total += 1.0
        state.array += 1.0
        state.seen |= {state.step}
        state.best["step"] = state.step
        state.last.extend("abc")
        state.step += 1

    model, optimizer = trained()
    losses, total = [], torch.zeros(2)
    state = TorchState(model, optimizer, live=live, losses=losses, total=total, array=numpy.zeros(2), seen=set(),
                       best={}, last=collections.deque(maxlen=4), step=0)
    advance()
    state.commit()
    for _ in range(2):
        advance()
        if live:
            state._live.is_changed = False  # the mark counts, not the copy
        state.restore()
        state.sync()
        assert state.losses is losses and state.total is total, "names of the program for them stay right"
        assert losses == [1, 2] and total.tolist() == state.array.tolist() == [1.0, 1.0]
        assert (state.seen, state.best, list(state.last), state.step) == ({0}, {"step": 0}, list("abc"), 1)


@pytest.mark.parametrize("live", [False, True])
def test_a_sync_that_fails_in_the_middle_leaves_the_last_commit(job, monkeypatch, live):
    def fail():
        raise HorovodInternalError("the root is lost")

    model, optimizer = trained()
    state = TorchState(model, optimizer, epoch=1, live=live)
    before = values_of(model, optimizer)
    monkeypatch.setattr(state._handlers["model"], "sync", lambda: torch.nn.init.zeros_(model.weight))
    monkeypatch.setattr(state._handlers["optimizer"], "sync", fail)
    with pytest.raises(HorovodInternalError):
        state.sync()
    assert not are_equal(values_of(model, optimizer), before)
    state.restore()
    assert are_equal(values_of(model, optimizer), before)


class Holder:
    def __init__(self, **state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def test_a_commit_is_a_copy_in_the_memory_of_the_one_before():
    shared = torch.ones(3)
    holder = Holder(shared=shared, again=[shared, torch.ones(2)], other=torch.ones(2), text="a")
    state = TorchState(holder=holder)
    memory = state._handlers["holder"]._saved["shared"].data_ptr()
    shared.fill_(2)
    holder.state.update(again=[shared, torch.full((2,), 5.0, requires_grad=True)], other=torch.ones(3, 1), text="b")
    state.save()
    saved = state._handlers["holder"]._saved
    assert saved["shared"].data_ptr() == memory
    shared.fill_(7)
    state.restore()
    restored = holder.state
    assert restored["shared"].tolist() == [2, 2, 2] and restored["again"][0] is restored["shared"]
    assert restored["again"][1].tolist() == [5, 5] and restored["again"][1].requires_grad
    assert restored["other"].shape == (3, 1) and restored["text"] == "b"
    assert restored["shared"].data_ptr() != memory  # what is loaded must not be the commit


def test_tensors_that_share_their_memory_no_more_are_saved_apart():
    whole = torch.zeros(4)
    holder = Holder(a=whole, b=whole, c=whole[:2])
    state = TorchState(holder=holder)
    holder.state.update(a=torch.ones(4), b=torch.full((4,), 2.0), c=torch.full((2,), 3.0))
    state.save()
    state.restore()
    assert [holder.state[name].tolist() for name in "abc"] == [[1] * 4, [2] * 4, [3] * 2]


def test_a_commit_that_was_interrupted_is_not_restored():
    class Interrupting:
        def __deepcopy__(self, _):
            raise KeyboardInterrupt

    holder = Holder(value=torch.ones(2))
    state = TorchState(holder=holder)
    holder.state["other"] = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        state.save()
    with pytest.raises(RuntimeError, match="the last commit was interrupted"):
        state.restore()


def test_a_value_that_tells_no_state_leaves_the_whole_commit_before():
    class Silent(Holder):
        is_silent = False

        def state_dict(self):
            if self.is_silent:
                raise HorovodInternalError("a rank is lost")
            return self.state

    state = TorchState(first=Holder(step=1), second=Silent(step=1), step=1)
    state.first.state, state.second.state, state.step, state.second.is_silent = {"step": 2}, {"step": 2}, 2, True
    with pytest.raises(HorovodInternalError):
        state.save()
    state.restore()
    assert (state.first.state, state.second.state, state.step) == ({"step": 1}, {"step": 1}, 1)


def test_an_attribute_that_cannot_be_copied_leaves_the_whole_commit_before(monkeypatch):
    def fail(_):
        raise MemoryError

    state = TorchState(holder=Holder(step=1), seen=[1])
    state.holder.state, state.seen = {"step": 2}, [2]
    monkeypatch.setattr(state, "_content_of", fail)
    with pytest.raises(MemoryError):
        state.save()
    monkeypatch.undo()
    state.restore()
    assert (state.holder.state, state.seen) == ({"step": 1}, [1])


def test_a_commit_that_ends_between_two_values_is_restored_in_no_part(monkeypatch):
    def interrupt():
        raise KeyboardInterrupt

    state = TorchState(first=Holder(step=1), second=trained()[0])
    state.first.state = {"step": 2}
    monkeypatch.setattr(state._handlers["second"], "save_copy_of", lambda _: interrupt())
    with pytest.raises(KeyboardInterrupt):
        state.save()
    state.first.state = {"step": 3}
    with pytest.raises(RuntimeError, match="the last commit was interrupted"):
        state.restore()
    assert state.first.state == {"step": 3}
    monkeypatch.undo()
    state.save()
    state.restore()
    assert state.first.state == {"step": 3}


def test_tensors_whose_elements_share_memory_are_committed_again_and_again():
    overlapping = torch.arange(6.0).as_strided((2, 3), (2, 1)), torch.ones(2, 1).expand(2, 3)
    plain = torch.ones(2, 3).t(), torch.ones(1, 4)[:, ::2], torch.tensor(1.0)
    assert [handlers_module._are_alike(each, each) for each in (*overlapping, *plain)] == [False] * 2 + [True] * 3
    state = TorchState(holder=Holder(value=torch.zeros(2, 1).expand(2, 3)))
    for value in (1.0, 2.0):
        state.holder.state = {"value": torch.full((2, 1), value).expand(2, 3)}
        state.save()
        state.restore()
        assert state.holder.state["value"].tolist() == [[value] * 3] * 2


def test_a_rank_whose_values_are_of_other_kinds_is_told_which(job, monkeypatch):
    of_rank_0 = {"model": ("ModelStateHandler", "Linear"), "ema": ("ModelStateHandler", "Linear")}
    monkeypatch.setattr(state_module, "broadcast_object", lambda thing, *_, **__: of_rank_0)
    state = TorchState(torch.nn.Linear(1, 1), ema=None)
    with pytest.raises(ValueError, match="expected ema to be what it is on rank 0, Linear; found a plain value"):
        state.sync()
    state = TorchState(torch.nn.Linear(1, 1), ema=torch.nn.Linear(1, 1), sampler=hvd.elastic.ElasticSampler(range(8)))
    with pytest.raises(ValueError, match="expected sampler to be .* nothing; found ElasticSampler"):
        state.sync()


def test_a_sync_is_what_the_next_restore_goes_back_to(job):
    model, optimizer = trained()
    state = TorchState(model, optimizer, sampler=hvd.elastic.ElasticSampler(range(8)))
    step(model, optimizer)
    state.sampler.record_batch(0, 2)
    state.sync()
    synchronised = values_of(model, optimizer)
    step(model, optimizer)
    state.sampler.record_batch(1, 2)
    state.restore()
    assert are_equal(values_of(model, optimizer), synchronised)
    assert state.sampler.processed_num == 2 and len(state.sampler.remaining_indices) == 6


def test_a_step_that_failed_leaves_no_gradients(job):
    model, optimizer = trained()
    state = TorchState(model, optimizer)
    state.restore()
    state.on_reset()
    assert all(parameter.grad is None for parameter in model.parameters())
    step(model, optimizer)
    state.save()
    state.on_reset()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_gradient_scaler_forgets_the_step_that_failed(job):
    model, optimizer = trained()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    state = TorchState(model, optimizer, scaler=scaler)
    for is_failing in (True, False):
        scaler.scale(model(torch.ones(4, 3)).square().sum()).backward()
        scaler.unscale_(optimizer)
        if is_failing:
            state.restore()
            state.on_reset()
    expected = values_of(*trained(2))
    scaler.step(optimizer)
    scaler.update()
    assert are_equal(values_of(model, optimizer), expected)


@pytest.mark.parametrize("live", [False, True])
def test_an_object_that_is_assigned_is_part_of_the_next_commit_and_of_none_before(job, live):
    (model, optimizer), (other, _) = trained(), trained(5)
    state = TorchState(model, optimizer, later=None, epoch=3, live=live)
    expected = values_of(model, optimizer)
    for _ in range(2):
        state.model, state.optimizer, state.epoch = other, None, 4
        state.later = torch.optim.SGD(other.parameters(), lr=0.5)
        step(model, optimizer)
        step(other, state.later)
        state.restore()
        assert (state.model, state.optimizer, state.later, state.epoch) == (model, optimizer, None, 3)
        assert are_equal(values_of(model, optimizer), expected)
        step(model, optimizer)
        state.model = state.model  # no other object
        state.restore()
        assert are_equal(values_of(model, optimizer), expected)
    state.model, state.optimizer, state.later = other, None, torch.optim.SGD(other.parameters(), lr=0.5, momentum=0.5)
    step(other, state.later)
    state.save()
    expected = values_of(other, state.later)
    for _ in range(2):
        step(other, state.later)
        state.later.param_groups[0]["lr"] = 9.0
        state.restore()
        assert state.model is other and state.optimizer is None and are_equal(values_of(other, state.later), expected)
        assert state.later.param_groups[0]["lr"] == 0.5 and state.epoch == 3
        state.sync()


def test_a_state_without_a_job_can_be_committed():
    model, optimizer = trained()
    state = TorchState(model, optimizer, epoch=0)
    state.commit()
    state.on_hosts_updated(1, HostUpdateResult.removed)
    with pytest.raises(HostsUpdatedInterrupt) as found:
        state.commit()
    assert found.value.skip_sync


def test_the_extra_state_of_modules_is_part_of_the_state(job):
    class Counting(torch.nn.Module):
        seen = 0

        def get_extra_state(self):
            return {"seen": self.seen}

        def set_extra_state(self, state):
            self.seen = state["seen"]

    model = Counting()
    state = TorchState(model)
    model.seen = 4
    state.sync()
    model.seen = 9
    state.restore()
    assert model.seen == 4


def test_handlers_of_other_types_can_be_registered():
    class Handler(StateHandler):
        def save(self):
            self.saved = list(self.value)

        def restore(self):
            self.value[:] = self.saved

        def sync(self):
            pass

    registry = get_handler_registry()
    try:
        set_handler_registry([(list, Handler), *registry])
        state = TorchState(losses=[1.0])
    finally:
        set_handler_registry(registry)
    state.losses.append(2.0)
    state.restore()
    assert state.losses == [1.0] and handlers_module._handler_registry is registry


@pytest.mark.parametrize("failing", ["of a list", "of a model"])
def test_a_handler_whose_save_fails_takes_the_training_back_to_the_commit_before(failing):
    failures = []

    class OfLists(StateHandler):
        def save(self):
            self.saved = list(self.value)
            if failing == "of a list" and failures:
                raise HorovodInternalError(failures.pop())

        def restore(self):
            self.value[:] = self.saved

        def sync(self):
            pass

    class OfModels(handlers_module.ModelStateHandler):
        def save(self):
            if failing == "of a model" and failures:
                raise HorovodInternalError(failures.pop())
            super().save()

        def sync(self):
            pass

    def set_to(number):
        torch.nn.init.constant_(state.model.weight, number)
        state.first.state, state.losses[:], state.epoch = {"step": number}, [number], number

    began = []

    def train(state):
        began.append({state.model.weight.item(), state.first.state["step"], *state.losses, state.epoch})
        if len(began) == 1:
            set_to(2)
            failures.append("a rank is lost")
            state.save()

    registry = get_handler_registry()
    try:
        set_handler_registry([(list, OfLists), (torch.nn.Module, OfModels)])
        state = TorchState(torch.nn.Linear(1, 1, bias=False), first=Holder(), losses=[], epoch=0)
        state.sync = lambda: None
        set_to(1)
        elastic.run_fn(train, lambda: None)(state)
    finally:
        set_handler_registry(registry)
    assert began == [{1}, {1}]


# ---- the sampler ------------------------------------------------------------------------------------------------


@pytest.fixture
def ranks(monkeypatch):
    """A function that makes this process a rank of a job of that size."""
    def become(rank, size):
        monkeypatch.setattr(sampler_module, "rank", lambda: rank)
        monkeypatch.setattr(sampler_module, "size", lambda: size)

    return become


def samples_of_all(ranks, size, length, state=None, **options):
    found = []
    for rank in range(size):
        ranks(rank, size)
        sampler = hvd.elastic.ElasticSampler(range(length), **options)
        if state is not None:
            sampler.load_state_dict(state)
        found.append(list(sampler))
        assert len(found[-1]) == len(sampler) == sampler.num_samples
    return found


@pytest.mark.parametrize("length", [0, 1, 2, 7, 12])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_ranks_share_out_the_samples_and_repeat_the_first(ranks, length, size):
    order = list(range(length))
    random.Random(5).shuffle(order)
    found = samples_of_all(ranks, size, length, seed=5)
    each = math.ceil(length / size)
    assert [len(samples) for samples in found] == [each] * size
    whole = [samples[index] for index in range(each) for samples in found]
    assert whole == (order * (size + 1))[:each * size]


def test_an_interrupted_epoch_repeats_the_first_samples_that_remain(ranks):
    """Contract §1.7: the padding is of the remaining list, not of the epoch."""
    found = samples_of_all(ranks, 3, 11, {"epoch": 0, "processed_num": 6}, shuffle=False)
    assert found == [[6, 9], [7, 10], [8, 6]]


def test_what_was_recorded_is_left_out_on_another_number_of_ranks(ranks):
    ranks(0, 2)
    sampler = hvd.elastic.ElasticSampler(range(12), shuffle=False)
    sampler.record_batch(0, 2)
    assert list(sampler) == [0, 2, 4, 6, 8, 10] and sampler.processed_num == 4
    state = sampler.state_dict()
    assert state == {"epoch": 0, "processed_num": 4}
    found = samples_of_all(ranks, 4, 12, state, shuffle=False)
    assert found == [[4, 8], [5, 9], [6, 10], [7, 11]]
    ranks(0, 4)
    sampler.reset()
    assert list(sampler) == [4, 8] and (sampler.num_replicas, sampler.rank, sampler.total_size) == (4, 0, 8)
    sampler.record_batch(0, 10)
    sampler.reset()
    assert len(sampler) == 0 and list(sampler) == []
    sampler.set_epoch(3)
    assert (sampler.epoch, sampler.processed_num, len(sampler)) == (3, 0, 3)


def test_a_state_divides_anew_where_hosts_were_only_removed(ranks):
    ranks(0, 2)
    state = TorchState(sampler=hvd.elastic.ElasticSampler(range(12), shuffle=False))
    state.sampler.record_batch(0, 2)
    state.save()
    ranks(0, 1)
    state.on_reset()
    assert list(state.sampler) == list(range(4, 12))
