"""horovod.tensorflow.keras and horovod.keras: models, callbacks, and saved models."""
import copy
import os
import pickle
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow.keras as hvd_of_tensorflow
from horovod._keras.models import variables_of
from horovod.common.operations import name_to_broadcast

keras = tf.keras
packages = [hvd_of_tensorflow]
if hasattr(keras, "Variable"):  # horovod.keras uses the package keras
    import horovod.keras as hvd_of_keras
    packages.append(hvd_of_keras)
DATA = np.random.default_rng(3).normal(size=(32, 4)).astype(np.float32)
TARGETS = DATA.sum(1, keepdims=True)


@pytest.fixture(params=packages, ids=lambda each: each.__name__)
def package(request):
    return request.param


@pytest.fixture
def folder(hvd, rank):
    """A folder that all ranks have."""
    with tempfile.TemporaryDirectory() as here:
        yield hvd.broadcast_object(here)
        hvd.barrier()


def compiled(optimizer):
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile(optimizer=optimizer, loss=keras.losses.MeanSquaredError())
    return model


def test_values_travel(package, rank, size):
    value = np.array([rank + 1.0, 1.0], np.float32)
    assert np.allclose(package.allreduce(value), [(size + 1) / 2, 1])
    assert np.allclose(package.allreduce(value, average=None, op=package.Sum), [size * (size + 1) / 2, size])
    assert np.allclose(package.allgather(value), [each for i in range(size) for each in (i + 1.0, 1.0)])
    assert np.allclose(package.broadcast(value, size - 1), [size, 1])
    assert np.allclose(package.reducescatter(np.ones((size, 2), np.float32)), np.ones((1, 2)))
    with pytest.raises(RuntimeError):
        package.broadcast_global_variables(0)


def test_an_optimizer_keeps_the_name_of_its_class(package):
    optimizer = package.DistributedOptimizer(keras.optimizers.Adam(0.25, beta_1=0.5))
    assert type(optimizer).__name__ == "Adam" and isinstance(optimizer, keras.optimizers.Adam)
    assert optimizer.name == "DistributedAdam" and optimizer.get_config()["beta_1"] == 0.5


class Around(keras.optimizers.SGD):
    """It has an inner optimizer, and is no loss scaling."""

    def __init__(self, inner_optimizer, every=1, **more):
        super().__init__(**more)
        self.inner_optimizer, self.every = keras.optimizers.get(inner_optimizer), every

    def get_config(self):
        inner = keras.optimizers.serialize(self.inner_optimizer)
        return {**super().get_config(), "inner_optimizer": inner, "every": self.every}


def test_an_optimizer_with_an_inner_one_is_not_taken_for_loss_scaling(package, rank, folder):
    given = Around(keras.optimizers.SGD(0.25, name="inner"), every=5)
    found = package.DistributedOptimizer(given)
    assert (found.name, found.inner_optimizer.name, found.every) == ("DistributedAround", "inner", 5)
    path = os.path.join(folder, f"{rank}.keras")
    compiled(given).save(path)
    loaded = package.load_model(path, custom_optimizers=[Around]).optimizer
    assert hasattr(loaded, "_hvd") and (loaded.inner_optimizer.name, loaded.every) == ("inner", 5)


def test_broadcasts_of_a_model_are_matched_by_names_too(package, folder, rank):
    model = compiled(package.DistributedOptimizer(keras.optimizers.SGD(0.25, momentum=0.5)))
    model.train_on_batch(DATA, TARGETS)
    path = os.path.join(folder, f"{rank}.keras")
    model.save(path)
    for each in (model, package.load_model(path)):
        names = [name_to_broadcast(variable, i) for i, variable in enumerate(each.weights)]
        assert names == ["dense/kernel/0", "dense/bias/1", "dense/kernel/2", "dense/bias/3"]
        assert {name_to_broadcast(variable, 7) for variable in variables_of(each.optimizer)} == {"7"}


@pytest.mark.skipif(not hasattr(keras, "Variable"), reason="of Keras 3")
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_copy_that_would_not_reduce_is_refused(package, copied):
    with pytest.raises(TypeError, match="would not reduce gradients"):
        copied(package.DistributedOptimizer(keras.optimizers.SGD(1.0)))


@pytest.mark.skipif(not hasattr(keras, "Variable"), reason="of Keras 3, which chooses XLA by itself")
def test_a_distributed_optimizer_keeps_a_model_on_a_gpu_out_of_xla(package, size, monkeypatch):
    class Gpu:
        device_type = "GPU"

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda *_: [Gpu()])
    alone, distributed = compiled(keras.optimizers.SGD(0.1)), compiled(package.DistributedOptimizer(
        keras.optimizers.SGD(0.1)))
    assert alone.jit_compile and not distributed.jit_compile
    distributed.compile(optimizer=distributed.optimizer, loss="mse", jit_compile=True)
    if size == 1:
        return  # nothing is reduced, so the model may be compiled
    with pytest.raises(NotImplementedError, match="jit_compile=False"):
        distributed.fit(DATA, TARGETS, verbose=0)


def test_callbacks_in_fit(package, hvd, rank, size, capsys):
    keras.utils.set_random_seed(rank + 1)
    model = compiled(package.DistributedOptimizer(keras.optimizers.Adam(0.01 * size)))
    callbacks = [package.callbacks.BroadcastGlobalVariablesCallback(0), package.callbacks.MetricAverageCallback(),
                 package.callbacks.LearningRateWarmupCallback(0.01 * size, warmup_epochs=2, verbose=1)]
    history = model.fit(DATA[rank::size], TARGETS[rank::size], batch_size=4, epochs=3, verbose=0, callbacks=callbacks)
    everyone = hvd.allgather_object((history.history, [each.tolist() for each in model.get_weights()]))
    assert all(each == everyone[0] for each in everyone)
    assert np.allclose(history.history["lr"], [0.01 * ((size - 1) / 2 + 1), 0.01 * size, 0.01 * size])
    assert ("finished gradual learning rate warmup to" in capsys.readouterr().out) == (rank == 0)


def test_a_broadcast_after_the_first_batch_leaves_local_variables_out(package, hvd, rank, size):
    keras.utils.set_random_seed(rank + 1)
    model = compiled(keras.optimizers.SGD(0.0))
    own, *others = model.trainable_variables
    before = own.numpy()
    model.fit(DATA, TARGETS, batch_size=32, epochs=1, verbose=0,
              callbacks=[package.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=own)])
    assert np.allclose(own.numpy(), before)
    everyone = hvd.allgather_object([each.numpy().tolist() for each in others])
    assert all(each == everyone[0] for each in everyone)
    with pytest.raises(ValueError, match="local_variables"):
        package.callbacks.BroadcastGlobalVariablesCallback(0, local_variables="kernel")


def rates_of(callback, epochs=4, batches=2):
    seen = []
    model = compiled(keras.optimizers.SGD(0.5))
    spy = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda *_, **__: seen.append(float(model.optimizer.learning_rate.numpy())))
    model.fit(DATA, TARGETS, batch_size=32 // batches, epochs=epochs, verbose=0, callbacks=[callback, spy])
    return seen


def test_schedules_of_the_learning_rate(package):
    schedule = package.callbacks.LearningRateScheduleCallback
    assert np.allclose(rates_of(schedule(0.4, 0.5)), [0.4, 0.4, 0.2, 0.2, 0.1, 0.1, 0.05, 0.05])
    assert np.allclose(rates_of(schedule(0.4, lambda epoch: 1 + epoch, start_epoch=1, end_epoch=3)),
                       [0.5, 0.5, 0.8, 0.8, 1.2, 1.2, 1.2, 1.2])
    assert np.allclose(rates_of(schedule(0.4, lambda epoch: 1 + epoch, staircase=False), 2), [0.4, 0.6, 0.8, 1.0])
    with pytest.raises(ValueError, match="initial_lr"):
        schedule(None, 0.5)


def test_the_best_model_is_written(package, rank, folder):
    callback = package.callbacks.BestModelCheckpoint(monitor="loss")
    model = compiled(keras.optimizers.SGD(0.01))
    with pytest.raises(ValueError, match="filepath"):
        model.fit(DATA, TARGETS, epochs=1, verbose=0, callbacks=[callback])
    callback.filepath = os.path.join(folder, f"best.{rank}.keras")
    model.fit(DATA, TARGETS, epochs=2, verbose=0, callbacks=[callback])
    assert os.path.exists(callback.filepath)


@pytest.mark.parametrize("kind", ["keras", "h5"])
def test_a_saved_model_goes_on_and_is_loaded_without_horovod(package, rank, size, folder, kind):
    model = compiled(package.DistributedOptimizer(keras.optimizers.Adam(0.01)))
    model.fit(DATA, TARGETS, batch_size=8, epochs=1, verbose=0)
    path = os.path.join(folder, f"model.{rank}.{kind}")
    model.save(path)
    loaded = package.load_model(path)
    assert hasattr(loaded.optimizer, "_hvd") and int(loaded.optimizer.iterations.numpy()) == 4
    if kind == "keras":  # from an .h5 Keras 3 itself takes no moments of an optimizer
        for each in (model, loaded):
            each.fit(DATA, TARGETS, batch_size=8, epochs=1, verbose=0, shuffle=False)
    for one, other in zip(model.get_weights(), loaded.get_weights()):
        assert np.allclose(one, other, atol=1e-5)
    if rank == 0:
        program = ("import sys; sys.modules['horovod'] = None\n"
                   "import tensorflow as tf\n"
                   f"model = tf.keras.models.load_model({path!r})\n"
                   "print(type(model.optimizer).__module__, int(model.optimizer.iterations.numpy()))")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD")}
        found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        assert found.returncode == 0, found.stderr
        assert found.stdout.split()[0].startswith("keras") and found.stdout.split()[1] == "4"


@pytest.fixture
def half_precision():
    policy = keras.mixed_precision.dtype_policy() if hasattr(keras.mixed_precision, "dtype_policy") else \
        keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy("mixed_float16")
    yield
    keras.mixed_precision.set_global_policy(policy)


@pytest.mark.parametrize("saved", ["around", "within"])
def test_a_model_with_loss_scaling_that_rank_0_loads_meets_a_new_one(package, rank, size, folder, half_precision,
                                                                    saved):
    def optimizer():
        return package.DistributedOptimizer(keras.optimizers.SGD(0.01, momentum=0.5))

    path = os.path.join(folder, "model.keras")
    if rank == 0:
        scaled = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.01, momentum=0.5))
        model = compiled(optimizer() if saved == "around" else package.DistributedOptimizer(scaled))
        model.optimizer.build(model.trainable_variables)
        model.save(path)
        model = package.load_model(path)
        assert hasattr(model.optimizer.inner_optimizer, "_hvd")
    else:
        model = compiled(optimizer())
    model.fit(DATA[rank::size], TARGETS[rank::size], batch_size=4, verbose=0,
              callbacks=[package.callbacks.BroadcastGlobalVariablesCallback(0)])
    everyone = package.allgather_object([each.tolist() for each in model.get_weights()])
    assert all(each == everyone[0] for each in everyone)
    keras.backend.clear_session()  # the next layers have the same names on all ranks


def test_a_partial_optimizer_leaves_layers_out(rank, size):
    if len(packages) == 1:
        pytest.skip("horovod.keras with Keras 2 has the same optimizers")
    here, there = keras.layers.Dense(1, use_bias=False), keras.layers.Dense(1, use_bias=False)
    for layer in (here, there):
        layer.build((None, 1))
        layer.set_weights([np.zeros((1, 1))])
    optimizer = hvd_of_keras.PartialDistributedOptimizer(keras.optimizers.SGD(1.0), local_layers=here,
                                                         scale_local_gradients=False)
    weights = here.trainable_variables + there.trainable_variables
    optimizer.apply_gradients(zip([tf.fill([1, 1], rank + 1.0)] * 2, weights))
    assert np.allclose(here.get_weights(), -(rank + 1)) and np.allclose(there.get_weights(), -(size + 1) / 2)
    with pytest.raises(ValueError, match="local_layers"):
        hvd_of_keras.PartialDistributedOptimizer(keras.optimizers.SGD(1.0), local_layers="all")


def test_callbacks_are_found_from_horovod_tensorflow(hvd):
    assert hvd.callbacks.MetricAverageCallback is hvd_of_tensorflow.callbacks.MetricAverageCallback
    assert hvd.elastic.run is hvd_of_tensorflow.elastic.run
