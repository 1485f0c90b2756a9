"""Gradients that are copied to the host, reduced there and copied back, as those of devices without a plugin are."""
import pytest
import torch
from torch.nn.utils import clip_grad_norm_
from training import loss

import horovod.torch._allreduce
import horovod.torch._tensors


@pytest.fixture(autouse=True)
def staged(monkeypatch):
    """Tensors of this test's host memory are treated like those of a device."""
    for module in (horovod.torch._allreduce, horovod.torch._tensors):
        monkeypatch.setattr(module, "is_on_host", lambda tensor: False)


@pytest.mark.parametrize("options", [{}, dict(groups=2), dict(op="Sum"), dict(backward_passes_per_step=2)],
                         ids=["plain", "groups", "sum", "passes"])
@pytest.mark.parametrize("clip", [False, True], ids=["", "clip"])
def test_training(equals_one_process, hvd, clip, options):
    passes = options.get("backward_passes_per_step", 1)

    def train(world):
        model = world.network()
        how = {**options, "op": hvd.Sum} if "op" in options else options
        optimizer = world.wrap(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model, **how)
        for step, (x, y) in enumerate(world.batches()):
            if step % passes == 0:
                optimizer.zero_grad()
            (loss(model(x), y) / (world.size if "op" in options else 1)).backward()
            if step % passes == passes - 1:
                if clip:
                    clip_grad_norm_(model.parameters(), 0.05)
                optimizer.step()
        return model, optimizer

    equals_one_process(train)


def test_a_scaler_and_sparse_gradients(equals_one_process):
    def train(world):
        model = world.network(lambda: torch.nn.Sequential(torch.nn.Embedding(5, 3, sparse=True), torch.nn.Linear(3, 3)))
        optimizer = world.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
        for x, y in world.batches():
            optimizer.zero_grad()
            scaler.scale(loss(model(y), y)).backward()
            scaler.step(optimizer)
            scaler.update()
        return model, optimizer

    equals_one_process(train)
