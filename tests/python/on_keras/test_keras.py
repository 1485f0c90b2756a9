"""horovod.keras where Keras runs on torch or JAX: no TensorFlow is needed, and the numbers are those of one process."""
import os
import sys
import tempfile

import keras
import numpy as np
import pytest

from horovod.common.exceptions import HorovodInternalError

BACKEND = keras.backend.backend()
on_torch = pytest.mark.skipif(BACKEND != "torch", reason="of Keras on torch")
on_jax = pytest.mark.skipif(BACKEND != "jax", reason="of Keras on JAX")


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
    assert "tensorflow" not in sys.modules and "tensorflow" not in BACKEND


@pytest.mark.parametrize("make", [
    lambda: keras.optimizers.SGD(0.05, momentum=0.9), lambda: keras.optimizers.Adam(0.05, global_clipnorm=0.5),
    lambda: keras.optimizers.Adagrad(keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5))],
    ids=["SGD", "Adam", "Adagrad"])
@pytest.mark.parametrize("arguments", [{}, {"gradient_predivide_factor": 2.0}, {"groups": 2}], ids=str)
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
    assert np.allclose(hvd.allreduce(keras.ops.convert_to_tensor([rank + 1.0])), (size + 1) / 2)
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
    optimizer.apply([keras.ops.full(tuple(each.shape), rank + 1.0) for each in weights], weights)
    for i, (new, old) in enumerate(zip(model.get_weights(), before)):
        assert np.allclose(old - new, rank + 1 if i < 2 else (size + 1) / 2, atol=1e-5)


def test_ranks_may_have_different_numbers_of_local_variables(hvd, rank, size):
    variables = [keras.Variable(np.full(2, 9.0), name=f"own_{i}") for i in range(rank)]
    variables += [keras.Variable(np.full(2, 9.0), name="shared") for _ in range(2)]
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
    for each in variables[:rank]:
        optimizer.register_local_var(each)
    optimizer.apply([keras.ops.full((2,), rank + 1.0) for _ in variables], variables)
    for i, each in enumerate(variables):
        assert np.allclose(keras.ops.convert_to_numpy(each), 9 - ((rank + 1) / size if i < rank else (size + 1) / 2))


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


def by_fit(model, rank, size):
    for step in range(4):
        part = slice(step * 12 + rank, (step + 1) * 12, size)
        model.fit(DATA[part], TARGETS[part], batch_size=12, epochs=1, verbose=0, shuffle=False)


@pytest.mark.parametrize("more", [{}, {"run_eagerly": True}, {"jit_compile": False}, {"jit_compile": True}], ids=str)
def test_fit_has_the_numbers_of_one_process_in_each_mode(hvd, rank, size, more):
    expected, found = (model_for(make(keras.optimizers.SGD(0.05, momentum=0.9)), **more)
                       for make in (lambda one: one, hvd.DistributedOptimizer))
    by_fit(expected, 0, 1)
    by_fit(found, rank, size)
    for one, other in zip(found.get_weights(), expected.get_weights()):
        assert np.allclose(one, other, atol=2e-5)


OPTIONS = {
    "clipped by variables": lambda: keras.optimizers.SGD(0.05, clipnorm=0.4),
    "clipped by values": lambda: keras.optimizers.SGD(0.05, clipvalue=0.2),
    "accumulated": lambda: keras.optimizers.SGD(0.05, gradient_accumulation_steps=2),
    "decayed": lambda: keras.optimizers.AdamW(keras.optimizers.schedules.CosineDecay(0.05, 4), weight_decay=0.01)}


@pytest.mark.parametrize("option", OPTIONS)
def test_options_of_optimizers_have_the_numbers_of_one_process_in_fit(hvd, rank, size, option):
    expected, found = (model_for(make(OPTIONS[option]())) for make in (lambda one: one, hvd.DistributedOptimizer))
    by_fit(expected, 0, 1)
    by_fit(found, rank, size)
    for one, other in zip(found.get_weights(), expected.get_weights()):
        assert np.allclose(one, other, atol=2e-5)


def test_rows_of_embeddings_have_the_numbers_of_one_process(hvd, rank, size):
    rows, targets = np.random.default_rng(6).integers(0, 5, (48, 3)), TARGETS
    results = []
    for make, place, count in ((lambda one: one, 0, 1), (hvd.DistributedOptimizer, rank, size)):
        model = keras.Sequential([keras.layers.Input((3,), dtype="int32"), keras.layers.Embedding(5, 2),
                                  keras.layers.Flatten(), keras.layers.Dense(1)])
        seeded = np.random.default_rng(1)
        model.set_weights([seeded.normal(size=each.shape) for each in model.get_weights()])
        model.compile(optimizer=make(keras.optimizers.Adam(0.05)), loss="mse")
        for step in range(4):
            part = slice(step * 12 + place, (step + 1) * 12, count)
            model.fit(rows[part], targets[part], batch_size=12, verbose=0, shuffle=False)
        results.append(model.get_weights())
    for one, other in zip(*results):
        assert np.allclose(one, other, atol=2e-5)


@pytest.mark.parametrize("is_within", [False, True])
def test_halves_with_loss_scaling_have_the_numbers_of_one_process(hvd, rank, size, is_within):
    """The scale is small: parts of a batch overflow where a whole batch does not, and such a step is skipped."""
    scaling, sgd = keras.optimizers.LossScaleOptimizer, keras.optimizers.SGD
    keras.config.set_dtype_policy("mixed_float16")
    try:
        expected = model_for(scaling(sgd(0.05), initial_scale=128.0))
        found = model_for(hvd.DistributedOptimizer(scaling(sgd(0.05), initial_scale=128.0)) if is_within else
                          scaling(hvd.DistributedOptimizer(sgd(0.05)), initial_scale=128.0))
        by_fit(expected, 0, 1)
        by_fit(found, rank, size)
    finally:
        keras.config.set_dtype_policy("float32")
    for one, other in zip(found.get_weights(), expected.get_weights()):
        assert np.allclose(one, other, atol=5e-3)
    everyone = hvd.allgather_object([each.tolist() for each in found.get_weights()])
    assert all(each == everyone[0] for each in everyone)


def test_groups_of_variables_and_halves(hvd, rank, size):
    model = model_for("sgd")
    first, second, *_ = weights = model.trainable_variables
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), groups=[[second, first]],
                                         compression=hvd.Compression.fp16)
    before = model.get_weights()
    optimizer.apply([keras.ops.full(tuple(each.shape), rank + 1.0) for each in weights], weights)
    for new, old in zip(model.get_weights(), before):
        assert np.allclose(old - new, (size + 1) / 2, atol=1e-5)
    with pytest.raises(ValueError, match="groups"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), groups="two")


@on_torch
def test_several_passes_are_added_up(hvd, rank, size):
    expected = model_for(keras.optimizers.SGD(0.05, momentum=0.9))
    train(expected, 0, 1)
    found = model_for(hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9),
                                                      backward_passes_per_step=2, average_aggregated_gradients=True))
    for step in range(4):
        part = slice(step * 12 + rank, (step + 1) * 12, size)
        for count in (1, 0):
            found.train_on_batch(DATA[part], TARGETS[part])
            assert int(found.optimizer._agg_helper.counter.numpy()) == count
    assert int(found.optimizer.iterations.numpy()) == 8
    for one, other in zip(found.get_weights(), expected.get_weights()):
        assert np.allclose(one, other, atol=2e-5)


def large_model_for(optimizer):
    model = keras.Sequential([keras.layers.Input((1024,)), *[keras.layers.Dense(1024) for _ in range(4)]])
    model.compile(optimizer=optimizer, loss="mse")
    return model


def test_large_gradients_arrive_on_one_processor(hvd, rank):
    """A call of the host that waits for threads of its framework would wait without end."""
    model = large_model_for(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)))
    ones = np.ones((4, 1024), np.float32)
    for _ in range(3):
        assert np.isfinite(model.train_on_batch(ones, ones))


def test_a_schedule_within_an_epoch_reads_and_sets_the_learning_rate(hvd):
    model = model_for(hvd.DistributedOptimizer(keras.optimizers.SGD(0.5)))
    seen = []
    spy = keras.callbacks.LambdaCallback(on_train_batch_end=lambda *_, **__: seen.append(rate_of(model)))
    schedule = hvd.callbacks.LearningRateScheduleCallback(0.4, lambda epoch: 1 + epoch, staircase=False)
    model.fit(DATA[:32], TARGETS[:32], batch_size=16, epochs=2, verbose=0, callbacks=[schedule, spy])
    assert np.allclose(seen, [0.4, 0.6, 0.8, 1.0])


def rate_of(model):
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()
    return float(keras.ops.convert_to_numpy(model.optimizer.learning_rate))


@on_jax
def test_a_loop_of_ones_own_has_the_numbers_of_one_process(hvd, rank, size):
    import jax
    results = []
    for make, place, count in ((lambda one: one, 0, 1), (hvd.DistributedOptimizer, rank, size)):
        model, optimizer = model_for("sgd"), make(keras.optimizers.Adam(0.05))
        optimizer.build(model.trainable_variables)

        def loss(trainable, data, targets):
            outputs, _ = model.stateless_call(trainable, [], data)
            return ((outputs - targets) ** 2).mean()

        @jax.jit
        def step(trainable, state, data, targets):
            return optimizer.stateless_apply(state, jax.grad(loss)(trainable, data, targets), trainable)

        trainable = [each.value for each in model.trainable_variables]
        state = [each.value for each in optimizer.variables]
        for i in range(4):
            part = slice(i * 12 + place, (i + 1) * 12, count)
            trainable, state = step(trainable, state, DATA[part], TARGETS[part])
        results.append(trainable)
    for one, other in zip(*results):
        assert np.allclose(one, other, atol=2e-5)


def test_a_step_is_skipped_on_all_ranks_when_one_has_infinities(hvd, rank, size):
    inner = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01))
    model = model_for(keras.optimizers.LossScaleOptimizer(inner, initial_scale=1.0))
    before = model.get_weights()
    data = DATA[rank:12:size] * (np.inf if rank == 0 else 1)
    model.train_on_batch(data, TARGETS[rank:12:size])
    assert all(np.array_equal(one, other) for one, other in zip(model.get_weights(), before))
    model.train_on_batch(DATA[rank:12:size], TARGETS[rank:12:size])
    assert not np.array_equal(model.get_weights()[0], before[0])
    everyone = hvd.allgather_object([each.tolist() for each in model.get_weights()])
    assert all(each == everyone[0] for each in everyone)


def test_what_is_not_there_is_named(hvd):
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedOptimizer(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    if BACKEND == "jax":
        with pytest.raises(NotImplementedError, match="gradient_accumulation_steps"):
            hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), backward_passes_per_step=2)
    with pytest.raises(AttributeError, match="SyncBatchNormalization is there for TensorFlow"):
        hvd.SyncBatchNormalization
    with pytest.raises(ValueError, match="op is"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), op=hvd.Adasum)


def train_elastic(hvd, rank, size, fails_at):
    model = model_for(hvd.DistributedOptimizer(keras.optimizers.Adam(0.05)))
    failures = [fails_at]

    class Fails(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if failures[0] == (state.epoch, state.batch) and rank == size - 1:
                failures[0] = None
                raise HorovodInternalError("on purpose")

    @hvd.elastic.run
    def train(state):
        elastic = hvd.elastic
        first = state.batch * 4 + rank
        while state.epoch < 3:
            model.fit(DATA[first::size], TARGETS[first::size], batch_size=4 // size, shuffle=False, verbose=0, epochs=1,
                      callbacks=[elastic.UpdateBatchStateCallback(state), elastic.UpdateEpochStateCallback(state),
                                 Fails(), elastic.CommitStateCallback(state, 2)])
            first = rank

    state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    train(state)
    return [each.numpy().tolist() for each in [*model.weights, *model.optimizer.variables]]


def test_a_failure_within_fit_changes_no_bit_of_a_training(hvd, rank, size):
    assert train_elastic(hvd, rank, size, (1, 3)) == train_elastic(hvd, rank, size, None)
