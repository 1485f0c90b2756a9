"""What a Checkpointer writes: the values at the save, of tensors of every form, however they change, and the random
numbers of every kind of device. What it reads: entries of the types that it knows."""
import types

import pytest
import torch

import horovod.torch as hvd
from horovod import _ops
from horovod.checkpoint import training, tree
from horovod.common.exceptions import HorovodInternalError


def test_a_snapshot_keeps_the_values_of_tensors_of_every_form():
    given = {
        "plain": torch.arange(7.0),
        "transposed": torch.arange(6.0).view(2, 3).t(),
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(3, dtype=torch.int8),
        "large": torch.arange(3 << 20),
    }
    expected = [tensor.clone() for tensor in given.values()]
    state = tree.flatten(given)
    memory = torch.empty(state.room_needed(), dtype=torch.uint8)
    _, kept = state.copied_into(memory)
    for tensor in given.values():
        tensor.zero_()
    assert len(kept) == len(expected)
    for copy, value in zip(kept, expected):
        assert torch.equal(copy, value)


def test_the_training_changes_its_tensors_while_they_are_written(tmp_path):
    hvd.init()
    model = torch.nn.Linear(1024, 1024)
    saved = model.weight.detach().clone()
    with hvd.checkpoint.Checkpointer(tmp_path / "run", model) as checkpointer:
        checkpointer.save(1)
        with torch.no_grad():
            model.weight.zero_()
        checkpointer.wait()
        checkpointer.restore()
    assert torch.equal(model.weight, saved)


@pytest.mark.parametrize("save", [
    lambda folder, model: hvd.checkpoint.save(folder / "one.h5", model, step=1),
    lambda folder, model: hvd.checkpoint.save(folder / "one.h5", model, step=1, sharded=True),
    lambda folder, model: hvd.checkpoint.Checkpointer(folder, model).save(1),
    lambda folder, model: hvd.checkpoint.Checkpointer(folder, model, asynchronous=False).save(1)],
    ids=["save", "save_sharded", "checkpointer", "synchronous_checkpointer"])
def test_a_checkpoint_of_results_that_were_lost_on_a_gpu_is_not_written(tmp_path, monkeypatch, save):
    """A rank was lost while the GPU worked on what is to be saved."""
    def raise_error():
        raise HorovodInternalError("rank 1 was lost")

    hvd.init()
    monkeypatch.setattr(tree, "is_on_gpu", lambda tensor: True)
    monkeypatch.setattr(tree, "synchronize", lambda device: None)
    monkeypatch.setattr(_ops, "check_results_on_devices", raise_error)
    with pytest.raises(HorovodInternalError):
        save(tmp_path, torch.nn.Linear(2, 2))
    assert not list(tmp_path.glob("*.h5"))


class Generators(types.SimpleNamespace):
    """A module of torch for devices of one kind, as torch.xpu is; of a single device without a number, as torch.mps."""

    def __init__(self, states):
        super().__init__(states=states, is_available=lambda: True, device_count=lambda: len(states))
        if len(states) > 1:
            self.is_initialized, self.current_device = lambda: True, lambda: 1

    def get_rng_state(self, ordinal=None):
        return self.states[len(self.states) // 2 if ordinal is None else ordinal].clone()

    def set_rng_state(self, state, ordinal=None):
        self.states[len(self.states) // 2 if ordinal is None else ordinal] = state


@pytest.mark.parametrize("count", [1, 3])
def test_the_random_numbers_of_each_kind_of_device_are_kept(monkeypatch, count):
    gpus = Generators([torch.tensor([7, ordinal], dtype=torch.uint8) for ordinal in range(count)])
    before = list(gpus.states)
    monkeypatch.setattr(torch, "xpu", gpus)
    monkeypatch.setattr(torch, "get_device_module", lambda device: getattr(torch, device.type))
    monkeypatch.setattr(torch, "accelerator", types.SimpleNamespace(
        is_available=lambda: True, current_accelerator=lambda: torch.device("xpu")), raising=False)
    state = training.random_state()
    gpus.states[:] = [torch.zeros(2, dtype=torch.uint8)] * count
    training.set_random_state(state)
    assert list(map(torch.equal, gpus.states, before)) == [True] * count


def test_an_entry_of_an_unknown_type_is_refused_by_its_path_and_type():
    entries = [("/", "", tree.GROUP, None), ("/extra", "", tree.TENSOR + 1, "value")]
    with pytest.raises(NotImplementedError, match="/extra is of the type 7, which this version of Horovod"):
        tree.unflatten(entries)
