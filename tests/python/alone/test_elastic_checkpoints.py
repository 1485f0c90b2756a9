"""A Checkpointer as a part of the state of hvd.elastic: the last commit is written by one process alone."""
import collections
import os
import signal

import pytest
import torch

import horovod.torch as hvd
from horovod.torch.elastic.state import TorchState


@pytest.fixture
def job():
    hvd.init()
    before = signal.getsignal(signal.SIGTERM)
    yield
    hvd.shutdown()
    signal.signal(signal.SIGTERM, before)


def weight_of(value):
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(model.weight, value)
    return model


@pytest.mark.parametrize("live", [False, True])
def test_the_last_commit_is_written_after_the_ranks_have_parted(job, tmp_path, live):
    model = weight_of(1.0)
    checkpointer = hvd.checkpoint.Checkpointer(tmp_path / "run", model)
    state = TorchState(model, checkpointer=checkpointer, seen=0, live=live)
    state.commit()
    assert not state.is_keeper()  # no step was done
    seen = [1]
    checkpointer.step(7, extra={"seen": seen})
    state.commit()
    seen.append(2)
    torch.nn.init.constant_(model.weight, 9.0)
    checkpointer.step(8, extra={"seen": seen})
    state.restore()
    hvd.shutdown()
    assert state.is_keeper()
    with pytest.raises(SystemExit) as end:
        state.keep()
    assert end.value.code == 75
    assert os.listdir(tmp_path / "run") == ["step-000000000007.h5"]
    hvd.init()
    other = weight_of(0.0)
    found = hvd.checkpoint.restore(tmp_path / "run", other)
    assert (found["step"], found["seen"], other.weight.item()) == (7, [1], 1.0)


@pytest.mark.parametrize("live", [False, True])
def test_after_a_restore_the_commit_is_kept_under_its_own_step(job, tmp_path, live):
    model = weight_of(1.0)
    checkpointer = hvd.checkpoint.Checkpointer(tmp_path / "run", model)
    state = TorchState(model, checkpointer=checkpointer, live=live, commits_per_copy=1)
    for committed, keeps in ((None, False), (7, True)):
        if committed:
            checkpointer.step(committed)
            state.commit()
        torch.nn.init.constant_(model.weight, 9.0)
        checkpointer.step(8)
        state.restore()
        state.sync()
        assert state.is_keeper() == keeps and model.weight.item() == 1.0
    hvd.shutdown()
    with pytest.raises(SystemExit):
        state.keep()
    assert os.listdir(tmp_path / "run") == ["step-000000000007.h5"]


def test_a_loss_with_its_graph_is_committed_without_the_graph(job, tmp_path):
    model = weight_of(3.0)
    checkpointer = hvd.checkpoint.Checkpointer(tmp_path / "run", model)
    state = TorchState(model, checkpointer=checkpointer)
    loss = model(torch.ones(1, 1)).sum()
    extra = {"loss": loss, "all": collections.OrderedDict(of=[(loss, 1)]), "size": torch.Size([2]), "itself": []}
    extra["itself"].append(extra["itself"])  # an error of a save, but not of each step
    checkpointer.step(7, extra)
    del extra["itself"]
    checkpointer.step(8, extra)
    state.commit()
    told = checkpointer.told[1]
    assert extra["loss"].requires_grad and told["size"] == (2,)
    assert repr(told["loss"]) == "tensor(3.)"
    assert repr(told["all"]) == "OrderedDict([('of', [(tensor(3.), 1)])])"


def test_an_earlier_write_that_failed_does_not_prevent_the_last(job, tmp_path, monkeypatch, capsys):
    def fail(*_):
        raise OSError("no room")

    checkpointer = hvd.checkpoint.Checkpointer(tmp_path / "run", weight_of(1.0))
    with monkeypatch.context() as patched:
        patched.setattr(checkpointer, "_write", fail)
        checkpointer.save(3)
        checkpointer._writing.wait()
    checkpointer.save_alone(4, None, 2)
    assert os.listdir(tmp_path / "run") == ["step-000000000004.h5"]
    assert "no room" in capsys.readouterr().err


def test_states_that_differ_between_ranks_cannot_be_kept(job, tmp_path):
    model = weight_of(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    optimizer._combines_steps = True  # as with op=hvd.Adasum
    checkpointer = hvd.checkpoint.Checkpointer(tmp_path / "run", model, optimizer)
    assert [checkpointer.can_save_alone(3, ranks) for ranks in (1, 2)] == [True, False]


def test_a_run_that_got_no_further_than_its_checkpoint_is_not_kept(job, tmp_path):
    model = weight_of(1.0)
    hvd.checkpoint.Checkpointer(tmp_path / "run", model, asynchronous=False).save(7)
    with hvd.checkpoint.Checkpointer(tmp_path / "run", model) as checkpointer:
        state = TorchState(model, checkpointer=checkpointer)
        checkpointer.restore()
        for step, is_further in ((7, False), (8, True)):
            checkpointer.step(step)
            state.commit()
            assert state.is_keeper() == is_further


def test_parts_of_other_ranks_cannot_be_kept(job, tmp_path):
    model = weight_of(1.0)
    state = TorchState(model, checkpointer=hvd.checkpoint.Checkpointer(tmp_path / "run", model, sharded=True))
    state.checkpointer.save(3)
    state.checkpointer.wait()
    state.commit()
    assert not state.is_keeper()


def test_ranks_that_come_later_save_at_the_same_steps(job, tmp_path):
    old, new = (hvd.checkpoint.Checkpointer(tmp_path / folder, weight_of(1.0), every_steps=10, every_minutes=60)
                for folder in ("run", "other"))
    assert [step for step in range(1, 15) if old.step(step)] == [10]
    new.go_on_from(old.progress())
    assert [step for step in range(15, 31) if new.step(step)] == [20, 30]
    assert new.told == (30, None)
    assert new.folder == old.folder  # one of them may have to write alone
