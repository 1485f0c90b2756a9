"""DistributedOptimizer around optimizers of TensorFlow 1 and of Keras: the numbers of one process."""
import numpy as np
import pytest
import tensorflow as tf

v1 = tf.compat.v1
keras = tf.keras
schedules = keras.optimizers.schedules
DATA = np.random.default_rng(3).normal(size=(48, 4)).astype(np.float32)
TARGETS = (DATA @ np.array([1, -2, 3, 0.5]) + 1).astype(np.float32)[:, None]


def batches_of(rank, size, count=4, rows=12):
    """The batches of a rank: together those of one process."""
    for step in range(count):
        part = slice(step * rows + rank, (step + 1) * rows, size)
        yield DATA[part], TARGETS[part]


OF_V1 = {
    "gradient descent": lambda: v1.train.GradientDescentOptimizer(0.05),
    "momentum": lambda: v1.train.MomentumOptimizer(0.02, 0.9),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "adam": lambda: v1.train.AdamOptimizer(0.05)}


def train_in_graph(optimizer, rank, size, use, repeat=1):
    with tf.Graph().as_default():
        x, y = v1.placeholder(tf.float32, [None, 4]), v1.placeholder(tf.float32, [None, 1])
        w, b = tf.Variable(tf.zeros([4, 1]) + 0.1 * rank), tf.Variable(0.0)
        loss = tf.reduce_mean((tf.matmul(x, w) + b - y) ** 2)
        optimizer = optimizer()
        train = optimizer.minimize(loss, global_step=v1.train.get_or_create_global_step())
        with v1.train.MonitoredTrainingSession(hooks=use) as session:
            for data, targets in batches_of(rank, size):
                for _ in range(repeat):
                    session.run(train, {x: data, y: targets})
            return session.run([w, b], {x: data, y: targets})


@pytest.mark.parametrize("name", OF_V1)
def test_of_tensorflow_1_in_a_monitored_session(hvd, rank, size, name):
    expected = train_in_graph(OF_V1[name], 0, 1, [])
    found = train_in_graph(lambda: hvd.DistributedOptimizer(OF_V1[name]()), rank, size,
                           [hvd.BroadcastGlobalVariablesHook(0)])
    for one, other in zip(found, expected):
        assert np.allclose(one, other, atol=1e-5)


@pytest.mark.skipif(not hasattr(tf, "estimator"), reason="TensorFlow has no Estimator since 2.16")
def test_of_an_estimator(hvd, rank, size, tmp_path):
    def model_fn(features, labels, mode):
        w = v1.get_variable("w", [4, 1], initializer=v1.constant_initializer(0.1 * rank))
        loss = tf.reduce_mean((tf.matmul(features, w) - labels) ** 2)
        optimizer = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(0.02, 0.9))
        train = optimizer.minimize(loss, global_step=v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

    def input_fn():
        return tf.data.Dataset.from_tensor_slices((DATA[rank::size], TARGETS[rank::size])).batch(12 // size)

    estimator = tf.estimator.Estimator(model_fn, model_dir=str(tmp_path))
    estimator.train(input_fn, hooks=[hvd.BroadcastGlobalVariablesHook(0)])
    expected, momentum = np.zeros((4, 1)), np.zeros((4, 1))
    for data, targets in batches_of(0, 1):
        momentum = 0.9 * momentum + 2 * data.T @ (data @ expected - targets) / len(data)
        expected = expected - 0.02 * momentum
    assert np.allclose(estimator.get_variable_value("w"), expected, atol=1e-4)


def test_of_tensorflow_1_adds_up_several_passes(hvd, rank, size):
    expected = train_in_graph(OF_V1["momentum"], 0, 1, [])
    found = train_in_graph(lambda: hvd.DistributedOptimizer(
        OF_V1["momentum"](), backward_passes_per_step=3, average_aggregated_gradients=True), rank, size,
        [hvd.BroadcastGlobalVariablesHook(0)], repeat=3)
    for one, other in zip(found, expected):
        assert np.allclose(one, other, atol=1e-5)


def test_of_tensorflow_1_delegates_and_leaves_local_variables_out(hvd, rank, size):
    with tf.Graph().as_default(), v1.Session() as session:
        w, own = tf.Variable(1.0), tf.Variable(1.0)
        optimizer = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(0.1, 0.9), scale_local_gradients=False)
        assert optimizer.get_name() == "DistributedMomentumOptimizer"
        optimizer.register_local_var(own)
        pairs = optimizer.compute_gradients((w + own) * (rank + 1))
        train = optimizer.apply_gradients(pairs)
        session.run(v1.global_variables_initializer())
        session.run(hvd.broadcast_global_variables(0))
        assert np.allclose(session.run([gradient for gradient, _ in pairs]), [(size + 1) / 2, rank + 1])
        session.run(train)
        assert optimizer.get_slot_names() == ["momentum"] and optimizer.get_slot(w, "momentum") is not None
        assert len(optimizer.variables()) == 2
        with pytest.raises(ValueError, match="already"):
            hvd.DistributedOptimizer(optimizer)


def test_of_tensorflow_1_cannot_add_up_in_eager_mode(hvd):
    with pytest.raises(ValueError, match="needs a graph"):
        hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1), backward_passes_per_step=2)
    found = tf.Variable([1.0])
    optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1))
    optimizer.minimize(lambda: tf.reduce_sum(found * (hvd.rank() + 1)))
    assert np.allclose(found, 1 - 0.1 * (hvd.size() + 1) / 2)


OF_KERAS = {
    "SGD": lambda **more: keras.optimizers.SGD(0.05, momentum=0.9, **more),
    "Adam": lambda **more: keras.optimizers.Adam(0.05, **more),
    "RMSprop": lambda **more: keras.optimizers.RMSprop(0.05, **more),
    "Adagrad": lambda **more: keras.optimizers.Adagrad(schedules.ExponentialDecay(0.1, 2, 0.5), **more)}


def model_for(optimizer, **more):
    layers = keras.layers
    model = keras.Sequential([layers.Input((4,)), layers.Dense(3, activation="tanh"), layers.Dense(1)])
    seeded = np.random.default_rng(1)
    model.set_weights([seeded.normal(size=each.shape) for each in model.get_weights()])
    model.compile(optimizer=optimizer, loss="mse", **more)
    return model


def by_fit(model, rank, size):
    for data, targets in batches_of(rank, size):
        model.fit(data, targets, batch_size=len(data), epochs=1, verbose=0, shuffle=False)


def by_batches(model, rank, size):
    for data, targets in batches_of(rank, size):
        model.train_on_batch(data, targets)


def by_tape(model, rank, size):
    @tf.function(reduce_retracing=True)
    def step(data, targets):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(data, training=True) - targets) ** 2)
        model.optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))

    for data, targets in batches_of(rank, size):
        step(tf.constant(data), tf.constant(targets))


def assert_same(model, other):
    for one, two in zip(model.get_weights(), other.get_weights()):
        assert np.allclose(one, two, atol=2e-5)


@pytest.mark.parametrize("train", [by_fit, by_batches, by_tape], ids=lambda each: each.__name__)
@pytest.mark.parametrize("name", OF_KERAS)
def test_of_keras(hvd, rank, size, name, train):
    expected = model_for(OF_KERAS[name]())
    train(expected, 0, 1)
    found = model_for(hvd.DistributedOptimizer(OF_KERAS[name]()))
    train(found, rank, size)
    assert_same(found, expected)


@pytest.mark.parametrize("more", [{"clipnorm": 0.5}, {"clipvalue": 0.1}, {"global_clipnorm": 0.5},
                                  {"weight_decay": 0.1}, {"use_ema": True}], ids=str)
def test_of_keras_clips_what_is_reduced(hvd, rank, size, more):
    expected = model_for(OF_KERAS["SGD"](**more))
    by_batches(expected, 0, 1)
    found = model_for(hvd.DistributedOptimizer(OF_KERAS["SGD"](**more)))
    by_batches(found, rank, size)
    assert_same(found, expected)


@pytest.mark.parametrize("eagerly", [False, True])
def test_of_keras_adds_up_several_passes(hvd, rank, size, eagerly):
    expected = model_for(OF_KERAS["SGD"]())
    by_batches(expected, 0, 1)
    found = model_for(hvd.DistributedOptimizer(OF_KERAS["SGD"](), backward_passes_per_step=2,
                                               average_aggregated_gradients=True), run_eagerly=eagerly)
    for data, targets in batches_of(rank, size):
        found.train_on_batch(data, targets)
        assert found.optimizer._agg_helper.counter.numpy() == 1
        found.train_on_batch(data, targets)
        assert found.optimizer._agg_helper.counter.numpy() == 0
    assert_same(found, expected)
    assert int(found.optimizer.iterations.numpy()) == 8


def test_of_keras_adds_up_each_list_of_variables_by_itself(hvd, rank, size):
    first, second = (tf.Variable([0.0, 0.0], name=name) for name in ("first", "second"))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    optimizer.build([first, second])
    for step in range(1, 5):
        optimizer.apply_gradients([(tf.constant([1.0, 1.0]) * step * (rank + 1), first)])
        optimizer.apply_gradients([(tf.constant([10.0, 10.0]) * step * (rank + 1), second)])
    assert np.allclose(first, -10 * (size + 1) / 2)
    assert np.allclose(second, -100 * (size + 1) / 2)


def test_of_keras_passes_everything_on(hvd, rank, size):
    variable = keras.Variable([1.0]) if hasattr(keras, "Variable") else tf.Variable([1.0])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), op=hvd.Sum, groups=1, name="ours",
                                         compression=hvd.Compression.fp16)
    assert optimizer.name == "ours"
    optimizer.apply_gradients(zip([tf.constant([rank + 1.0])], [variable]))
    assert np.allclose(variable.numpy(), 1 - size * (size + 1) / 2)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), scale_local_gradients=False)
    optimizer.register_local_var(variable)
    variable.assign([0.0])
    optimizer.apply_gradients([(tf.constant([rank + 1.0]), variable)])
    assert np.allclose(variable.numpy(), -(rank + 1))


def test_of_keras_sparse_gradients(hvd, rank, size):
    results, layers = [], keras.layers
    for make, place, count in ((lambda one: one, 0, 1), (hvd.DistributedOptimizer, rank, size)):
        model = keras.Sequential([layers.Input((3,)), layers.Embedding(8, 2), layers.Flatten(), layers.Dense(1)])
        seeded = np.random.default_rng(1)
        model.set_weights([seeded.normal(size=each.shape) for each in model.get_weights()])
        model.compile(optimizer=make(keras.optimizers.SGD(0.1)), loss="mse")
        words = np.random.default_rng(2).integers(0, 8, (12, 3))
        for _ in range(3):
            model.train_on_batch(words[place::count], TARGETS[:12][place::count])
        results.append(model.get_weights())
    for one, other in zip(*results):
        assert np.allclose(one, other, atol=1e-5)


def test_of_keras_skips_a_step_on_all_ranks_when_one_has_infinities(hvd, rank, size):
    policy = keras.mixed_precision.dtype_policy() if hasattr(keras.mixed_precision, "dtype_policy") else \
        keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.set_weights([np.ones((4, 1)), np.zeros(1)])
        model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
        assert "LossScale" in type(model.optimizer).__name__
        data = np.full((4, 4), 1e4 if rank == 0 else 1.0, np.float32)
        model.train_on_batch(data, np.zeros((4, 1), np.float32))
        assert np.allclose(model.get_weights()[0], 1)  # nobody has taken the step
        for _ in range(3):
            model.train_on_batch(data * 0 + 1, np.zeros((4, 1), np.float32))
        weights = model.get_weights()[0]
    finally:
        keras.mixed_precision.set_global_policy(policy)
    everyone = hvd.allgather_object(weights.tolist())
    assert all(each == everyone[0] for each in everyone)


def test_arguments_of_optimizers_are_checked(hvd):
    with pytest.raises(ValueError, match="op is"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), op=hvd.Adasum)
    with pytest.raises(ValueError, match="Adasum"):
        hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1), op=hvd.Adasum,
                                 average_aggregated_gradients=True)
    for optimizer in (keras.optimizers.SGD(0.1), v1.train.GradientDescentOptimizer(0.1)):
        with pytest.raises(ValueError, match="backward_passes_per_step"):
            hvd.DistributedOptimizer(optimizer, backward_passes_per_step=0)
        with pytest.raises(ValueError, match="groups"):
            hvd.DistributedOptimizer(optimizer, groups="two")
        with pytest.raises(ValueError, match="gradient_predivide_factor"):
            hvd.DistributedOptimizer(optimizer, gradient_predivide_factor=2.0, op=hvd.Sum)
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedOptimizer(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    with pytest.raises(ValueError, match="expected an optimizer"):
        hvd.DistributedOptimizer("adam")


def test_slices_cannot_be_added_up_unless_they_are_made_dense(hvd):
    table = keras.Variable(np.ones((3, 2), np.float32)) if hasattr(keras, "Variable") else tf.Variable(tf.ones([3, 2]))
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1]), tf.constant([3, 2]))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    with pytest.raises(ValueError, match="sparse_as_dense"):
        optimizer.apply_gradients([(slices, table)])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=2, sparse_as_dense=True)
    for _ in range(2):
        optimizer.apply_gradients([(slices, table)])
    assert np.allclose(table.numpy(), [[1, 1], [-1, -1], [1, 1]])


def step_by_adasum(hvd, passes, gradient, eagerly):
    """Returns a variable after `passes` steps of this rank with that gradient, combined by Adasum."""
    def make():
        return hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.5), op=hvd.Adasum,
                                        backward_passes_per_step=passes)

    if eagerly:
        variable, optimizer = tf.Variable([1.0] * 4), make()
        for _ in range(passes):
            optimizer.apply_gradients([(tf.constant(gradient), variable)])
        return variable.numpy()
    with tf.Graph().as_default(), v1.Session() as session:
        variable, optimizer = tf.Variable([1.0] * 4), make()
        train = optimizer.minimize(tf.reduce_sum(variable * gradient))
        session.run(v1.global_variables_initializer())
        for _ in range(2 * passes):
            session.run(train)
        return session.run(variable)


@pytest.mark.parametrize("eagerly", [False, True])
@pytest.mark.parametrize("passes", [1, 2])
def test_adasum_combines_the_changes_of_ranks(hvd, rank, size, passes, eagerly):
    own = np.eye(4, dtype=np.float32)[rank]  # orthogonal changes are added
    rounds = passes if eagerly else 2 * passes
    assert np.allclose(step_by_adasum(hvd, passes, own, eagerly), [1 - 0.5 * rounds] * size + [1] * (4 - size))
    parallel = np.float32([1, 2, 0, -1])  # parallel ones are averaged
    assert np.allclose(step_by_adasum(hvd, passes, parallel, eagerly), 1 - 0.5 * rounds * parallel)


def test_adasum_is_for_all_ranks(hvd):
    with pytest.raises(NotImplementedError, match="global process set"):
        hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1), op=hvd.Adasum, process_set=hvd.ProcessSet([0]))


def test_an_optimizer_from_the_settings_of_a_distributed_one_reduces(hvd, rank, size):
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), op=hvd.Sum)
    again = type(optimizer).from_config(optimizer.get_config())
    variable = keras.Variable([0.0]) if hasattr(keras, "Variable") else tf.Variable([0.0])
    again.apply_gradients([(tf.constant([rank + 1.0]), variable)])
    assert np.allclose(variable.numpy(), -size * (size + 1) / 2)
