"""Tests of horovod.common.elastic, without a framework and without a job: states, interrupts, the loop around
training."""
import queue

import pytest

from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from ranks import alone

pytestmark = alone


def bcast(thing, **_):
    return thing


def state_of(**values):
    from horovod.common.elastic import ObjectState
    return ObjectState(bcast_object=bcast, get_rank=lambda: 0, **values)


def test_the_results_of_an_update_are_these_flags():
    """Contract §1.7 HostUpdateResult"""
    from horovod.runner.elastic.worker import HostUpdateResult
    names = ["no_update", "removed", "added", "mixed"]
    assert [int(getattr(HostUpdateResult, name)) for name in names] == [0, 1, 2, 3]


def test_a_state_saves_restores_and_syncs_its_attributes():
    """Contract §1.7 ObjectState"""
    state = state_of(epoch=1, batch=2)
    assert (state.epoch, state.batch) == (1, 2)
    state.epoch = 5
    state.restore()
    assert state.epoch == 1
    state.epoch = 6
    state.save()
    state.epoch = 7
    state.restore()
    assert state.epoch == 6
    state.epoch = 8
    state.sync()
    assert state.epoch == 6
    state_of().sync()


def test_a_sync_takes_over_what_rank_0_saved():
    """Contract §1.7 ObjectState.sync"""
    from horovod.common.elastic import ObjectState
    state = ObjectState(bcast_object=lambda thing, **_: {"epoch": 42}, get_rank=lambda: 1, epoch=0)
    state.sync()
    assert state.epoch == 42


def test_a_plain_state_leaves_saving_to_others():
    """Contract §1.7 State"""
    from horovod.common.elastic import State
    state = State(bcast_object=bcast, get_rank=lambda: 0)
    for name in ("save", "restore", "sync"):
        with pytest.raises(NotImplementedError):
            getattr(state, name)()


def test_callbacks_of_a_reset_are_called_in_order():
    """Contract §1.7 register_reset_callbacks"""
    state, called = state_of(), []
    state.register_reset_callbacks([lambda: called.append(1), lambda: called.append(2)])
    state.register_reset_callbacks([lambda: called.append(3)])
    messages = state._host_messages
    state.on_reset()
    assert called == [1, 2, 3]
    assert isinstance(state._host_messages, queue.Queue) and state._host_messages is not messages


@pytest.mark.parametrize("results, skip", [([1], True), ([2], False), ([1, 2], False), ([1, 1], True), ([3], False)])
def test_an_update_of_hosts_interrupts_at_the_next_commit(results, skip):
    """Contract §1.7 check_host_updates [Horovod tests this]"""
    state = state_of(epoch=1)
    state.commit()
    for stamp, result in enumerate(results, 1):
        state.on_hosts_updated(stamp, result)
    with pytest.raises(HostsUpdatedInterrupt) as found:
        state.commit()
    assert found.value.skip_sync is skip and state._last_updated_timestamp == len(results)
    state.commit()  # the second commit does not raise again


def test_an_older_update_is_no_news():
    """Contract §1.7 check_host_updates [Horovod tests this]"""
    state = state_of()
    state.on_hosts_updated(5, 2)
    with pytest.raises(HostsUpdatedInterrupt):
        state.check_host_updates()
    state.on_hosts_updated(4, 2)
    state.on_hosts_updated(5, 2)
    state.check_host_updates()


class Watched:
    """A state that records the methods that are called."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *arguments: self.calls.append(name)


@pytest.mark.parametrize("error, expected", [
    (HorovodInternalError(), ["sync", "restore", "on_reset", "sync"]),
    (HostsUpdatedInterrupt(False), ["sync", "on_reset", "sync"]),
    (HostsUpdatedInterrupt(True), ["sync", "on_reset"])], ids=["failure", "update", "update without sync"])
def test_training_goes_on_after_an_interruption(error, expected, monkeypatch):
    """Contract §1.7 run_fn"""
    from horovod.common import elastic
    monkeypatch.setattr(elastic.notification_manager, "init", lambda *a, **k: None)
    state, resets, errors = Watched(), [], [error]

    def train(state, *arguments, **named):
        """What it is for."""
        if errors:
            raise errors.pop()
        return arguments, named

    wrapped = elastic.run_fn(train, lambda: resets.append(1))
    assert wrapped.__name__ == "train" and wrapped.__doc__ == "What it is for."
    assert wrapped(state, 1, two=2) == ((1,), {"two": 2})
    assert [call for call in state.calls if call in ("sync", "restore", "on_reset")] == expected and resets == [1]


def test_another_error_leaves_the_loop(monkeypatch):
    """Contract §1.7 run_fn"""
    from horovod.common import elastic
    monkeypatch.setattr(elastic.notification_manager, "init", lambda *a, **k: None)

    def train(state):
        raise KeyError("of the user")

    with pytest.raises(KeyError):
        elastic.run_fn(train, lambda: None)(Watched())
