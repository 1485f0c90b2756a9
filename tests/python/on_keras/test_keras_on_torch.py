"""horovod.keras where Keras runs on torch: no TensorFlow is needed, and the numbers are those of one process."""
import os
import sys
import tempfile

import keras
import numpy as np
import pytest
import torch

DATA = np.random.default_rng(3).normal(size=(48, 4)).astype(np.float32)
TARGETS = (DATA @ np.array([1, -2, 3, 0.5]) + 1).astype(np.float32)[:, None]


def model_for(optimizer, seed=1, **more):
    layers = keras.layers
    model = keras.Sequential([layers.Input((4,)), layers.Dense(3, activation="tanh"), layers.Dense(1)])
    seeded = np.random.default_rng(seed)
    model.set_weights([seeded.normal(size=each.shape) for each in model.get_weights()])
    model.compile(optimizer=optimizer, loss=keras.losses.MeanSquaredError(), **more)
    return model


def train(model, rank, size):
    for step in range(4):
        part = slice(step * 12 + rank, (step + 1) * 12, size)
        model.train_on_batch(DATA[part], TARGETS[part])


def test_tensorflow_is_not_imported(hvd):
    assert "tensorflow" not in sys.modules and keras.backend.backend() == "torch"


@pytest.mark.parametrize("make", [
    lambda: keras.optimizers.SGD(0.05, momentum=0.9), lambda: keras.optimizers.Adam(0.05, global_clipnorm=0.5),
    lambda: keras.optimizers.Adagrad(keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5))],
    ids=["SGD", "Adam", "Adagrad"])
@pytest.mark.parametrize("arguments", [{}, {"gradient_predivide_factor": 2.0}, {"groups": 1}], ids=str)
def test_training_has_the_numbers_of_one_process(hvd, rank, size, make, arguments):
    expected, found = model_for(make()), model_for(hvd.DistributedOptimizer(make(), **arguments))
    train(expected, 0, 1)
    train(found, rank, size)
    for one, other in zip(found.get_weights(), expected.get_weights()):
        assert np.allclose(one, other, atol=2e-5)


def test_callbacks_in_fit(hvd, rank, size):
    model = model_for(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * size, momentum=0.5)), seed=rank)
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback(),
                 hvd.callbacks.LearningRateWarmupCallback(0.01 * size, warmup_epochs=2)]
    history = model.fit(DATA[rank::size], TARGETS[rank::size], batch_size=4, epochs=3, verbose=0, callbacks=callbacks)
    assert model.optimizer.momentum == 0.5
    everyone = hvd.allgather_object((history.history, [each.tolist() for each in model.get_weights()]))
    assert all(each == everyone[0] for each in everyone)


def test_values_travel(hvd, rank, size):
    assert np.allclose(hvd.allreduce(torch.tensor([rank + 1.0])), (size + 1) / 2)
    gathered = np.repeat(np.arange(size), range(1, size + 1))
    assert np.allclose(hvd.allgather(np.full((rank + 1, 2), rank)), gathered[:, None])
    assert hvd.allgather(np.empty((0, 3))).shape == (0, 3)
    assert np.allclose(hvd.broadcast([rank, 1.0], size - 1), [size - 1, 1])
    assert np.allclose(hvd.reducescatter(np.ones((size, 2)), op=hvd.Sum), np.full((1, 2), size))
    with pytest.raises(RuntimeError, match="BroadcastGlobalVariablesCallback"):
        hvd.broadcast_global_variables(0)
    with pytest.raises(ValueError, match="supersedes"):
        hvd.allreduce([1.0], op=hvd.Sum)


def test_layers_of_a_partial_optimizer_keep_their_own_gradients(hvd, rank, size):
    model = model_for("sgd")
    here = model.layers[0]
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(1.0), local_layers=here,
                                                scale_local_gradients=False)
    before = model.get_weights()
    weights = model.trainable_variables
    optimizer.apply([torch.full(tuple(each.shape), rank + 1.0) for each in weights], weights)
    for i, (new, old) in enumerate(zip(model.get_weights(), before)):
        assert np.allclose(old - new, rank + 1 if i < 2 else (size + 1) / 2, atol=1e-5)


def test_a_saved_model_goes_on_and_keras_alone_loads_it(hvd, rank):
    model = model_for(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)))
    train(model, 0, 1)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        loaded, plain = hvd.load_model(path), keras.models.load_model(path)
    assert hasattr(loaded.optimizer, "_hvd") and not hasattr(plain.optimizer, "_hvd")
    for each in (model, loaded):
        train(each, 0, 1)
    for one, other in zip(model.get_weights(), loaded.get_weights()):
        assert np.allclose(one, other, atol=1e-5)


def test_what_is_not_there_is_named(hvd):
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedOptimizer(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    with pytest.raises(NotImplementedError, match="gradient_accumulation_steps"):
        hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), backward_passes_per_step=2)
    with pytest.raises(ValueError, match="op is"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), op=hvd.Adasum)
