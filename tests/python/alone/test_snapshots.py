"""What an asynchronous Checkpointer writes: the values at the save, of tensors of every form, however they change."""
import torch

import horovod.torch as hvd
from horovod.checkpoint import tree


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
