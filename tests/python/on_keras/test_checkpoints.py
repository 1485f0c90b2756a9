"""hvd.checkpoint of Keras, and the callbacks that save and stop."""
import os
import tempfile

import keras
import numpy as np
import pytest

DATA = np.random.default_rng(3).normal(size=(48, 4)).astype(np.float32)
TARGETS = DATA.sum(1, keepdims=True)


@pytest.fixture
def folder(hvd):
    """A folder that all ranks have."""
    with tempfile.TemporaryDirectory() as here:
        yield hvd.broadcast_object(here)
        hvd.barrier()


def model_for(hvd, seed):
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    seeded = np.random.default_rng(seed)
    model.set_weights([seeded.normal(size=each.shape) for each in model.get_weights()])
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.05)), loss="mse")
    return model


def values_of(model):
    return [each.numpy().tolist() for each in [*model.weights, *model.optimizer.variables]]


def test_a_model_and_its_optimizer_come_back_from_rank_0(hvd, rank, size, folder):
    model = model_for(hvd, seed=7)
    model.train_on_batch(DATA[rank::size], TARGETS[rank::size])
    path = os.path.join(folder, "model.h5")
    hvd.checkpoint.save(path, model, model.optimizer, step=5, extra={"loss": 0.5, "files": ["a", "b"]})
    other = model_for(hvd, seed=rank)
    assert hvd.checkpoint.restore(path, other, other.optimizer) == {"step": 5, "loss": 0.5, "files": ["a", "b"]}
    assert values_of(other) == values_of(model)
    assert hvd.checkpoint.latest(folder) == path and hvd.checkpoint.latest(os.path.join(folder, "none")) is None


def test_what_does_not_fit_is_refused_on_all_ranks(hvd, folder):
    path = os.path.join(folder, "model.h5")
    model = model_for(hvd, seed=1)
    hvd.checkpoint.save(path, model)
    larger = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match=r"another model.*float32\[4, 3\]"):
        hvd.checkpoint.restore(path, larger)
    with pytest.raises(ValueError, match="another optimizer.*0 variables"):
        hvd.checkpoint.restore(path, model, model.optimizer)
    with pytest.raises(TypeError, match="extra"):
        hvd.checkpoint.save(path, model, extra={"model": model})
    with pytest.raises((OSError, ValueError)):
        hvd.checkpoint.restore(os.path.join(folder, "none.h5"), model)
    with pytest.raises(ValueError, match="build it first"):
        hvd.checkpoint.save(path, keras.Sequential([keras.layers.Dense(1)]))


def fit(hvd, model, checkpointer, first, epochs, *more):
    for epoch in range(first, epochs):
        model.fit(DATA[hvd.rank()::hvd.size()], TARGETS[hvd.rank()::hvd.size()], batch_size=12 // hvd.size(), epochs=1,
                  shuffle=False, verbose=0, callbacks=[*more, hvd.callbacks.CheckpointCallback(checkpointer)])
        checkpointer.restored_step = 4 * (epoch + 1)
        if checkpointer.stopped:
            break


def test_a_training_that_stopped_goes_on_from_its_checkpoint(hvd, rank, size, folder):
    expected = model_for(hvd, seed=1)
    fit(hvd, expected, hvd.checkpoint.Checkpointer(os.path.join(folder, "whole"), expected, expected.optimizer), 0, 3)
    model = model_for(hvd, seed=1)
    here = os.path.join(folder, "parts")
    fit(hvd, model, hvd.checkpoint.Checkpointer(here, model, model.optimizer, every_steps=4, keep=2), 0, 2)
    model = model_for(hvd, seed=2)
    checkpointer = hvd.checkpoint.Checkpointer(here, model, model.optimizer, every_steps=4)
    assert checkpointer.restore()["step"] == 8
    fit(hvd, model, checkpointer, 2, 3)
    assert values_of(model) == values_of(expected)


def test_callbacks_stop_all_ranks_at_one_step(hvd, rank, size, folder):
    """The last test of this file: afterwards the ranks of this job are to stop."""
    class Asks(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if rank == size - 1 and batch == 1:
                hvd.request_stop("enough")

    hvd.shutdown()
    hvd.init()
    model = model_for(hvd, seed=1)
    checkpointer = hvd.checkpoint.Checkpointer(folder, model, model.optimizer)
    stop = hvd.callbacks.StopCallback()
    callback = hvd.callbacks.CheckpointCallback(checkpointer)
    model.fit(DATA, TARGETS, batch_size=1, epochs=2, verbose=0, callbacks=[Asks(), callback])
    steps = hvd.allgather_object(callback.step)
    assert checkpointer.stopped and steps[0] < 48 and set(steps) == {steps[0]} and checkpointer.exit_code == 0
    assert hvd.checkpoint.latest(folder).endswith(f"step-{steps[0]:012d}.h5") and hvd.stop_reason() == "enough"
    model.fit(DATA, TARGETS, batch_size=1, epochs=2, verbose=0, callbacks=[stop])
    assert stop.stopped
    hvd.shutdown()
    hvd.init()
