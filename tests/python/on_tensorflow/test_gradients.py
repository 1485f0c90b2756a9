"""The gradient of every collective."""
import types

import numpy as np
import pytest
import tensorflow as tf

from horovod.tensorflow import mpi_ops


def gradient(run, function, value, weights):
    """The gradient of sum(function(x) * weights) with respect to x."""
    def compute(x):
        if tf.executing_eagerly() or isinstance(tf.compat.v1.get_default_graph(), tf.__internal__.FuncGraph):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.reduce_sum(function(x) * weights)
            return tape.gradient(y, x)
        return tf.gradients(tf.reduce_sum(function(x) * weights), x)[0]

    return run(compute, value)


def test_allreduce(hvd, run, rank, size):
    value = np.ones((2, 3))
    for op, factor in ((hvd.Sum, size * (size + 1) / 2), (hvd.Average, (size + 1) / 2)):
        found = gradient(run, lambda x, op=op: hvd.allreduce(x, op=op), value, rank + 1.0)
        assert np.allclose(found, factor)
        found = gradient(run, lambda x, op=op: sum(hvd.grouped_allreduce([x, 2 * x], op=op)), value, rank + 1.0)
        assert np.allclose(found, 3 * factor)
    found = gradient(run, lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5), value, 1.0)
    assert np.allclose(found, 0.5 * size)


def values_of(rank):
    """Distinct numbers, numbers of which several ranks have the same, and zeros on all, two, one and no ranks."""
    drawn = np.random.default_rng(17 + rank).normal(size=(5, 8))
    drawn[1] = drawn[1].round() + 0.0
    drawn[2] = 0
    drawn[3] *= rank != 0
    drawn[4] *= rank > 1
    return drawn


@pytest.mark.parametrize("prescale,postscale", [(1.0, 1.0), (0.5, -2.0)], ids=str)
@pytest.mark.parametrize("name", ["Min", "Max", "Product"])
def test_gradients_by_values_are_those_of_one_process(hvd, run, rank, size, name, prescale, postscale):
    def reduce_all(stacked):
        if name == "Product":
            return tf.reduce_prod(stacked, 0)
        return (tf.reduce_min if name == "Min" else tf.reduce_max)(stacked, 0)

    stacked = tf.constant([values_of(other) for other in range(size)])
    with tf.GradientTape() as tape:
        tape.watch(stacked)
        loss = tf.reduce_sum(reduce_all(stacked * prescale) * postscale) * (size * (size + 1) / 2)
    expected = tape.gradient(loss, stacked)[rank]
    how = {"op": getattr(hvd, name), "prescale_factor": prescale, "postscale_factor": postscale}
    found = gradient(run, lambda x: hvd.allreduce(x, **how), values_of(rank), rank + 1.0)
    assert np.allclose(found, expected)
    found = gradient(run, lambda x: sum(hvd.grouped_allreduce([x, x], **how)), values_of(rank), rank + 1.0)
    assert np.allclose(found, 2 * expected)


def test_a_reduce_operation_whose_gradient_is_not_known_is_refused():
    attributes = {"reduce_op": 6, "prescale_factor": 1.0, "postscale_factor": 1.0, "process_set_id": 0}
    operation = types.SimpleNamespace(type="HorovodAllreduce", get_attr=attributes.get)
    for gradient_of in (mpi_ops._gradient_of_allreduce, mpi_ops._gradient_of_grouped_allreduce):
        with pytest.raises(NotImplementedError, match="HorovodAllreduce: op=6 has no gradient;"):
            gradient_of(operation, tf.ones(3))


def test_allgather_of_different_rows(hvd, run, rank, size):
    weights = np.arange(sum(range(1, size + 1)), dtype=float)[:, None]
    first = sum(range(1, rank + 1))
    expected = np.repeat(weights[first:first + rank + 1], 2, 1)
    assert np.allclose(gradient(run, hvd.allgather, np.ones((rank + 1, 2)), weights), expected)
    found = gradient(run, lambda x: sum(hvd.grouped_allgather([x, 2 * x])), np.ones((rank + 1, 2)), weights)
    assert np.allclose(found, 3 * expected)


def test_broadcast_has_none_but_at_the_root(hvd, run, rank, size):
    found = gradient(run, lambda x: hvd.broadcast(x, size - 1), np.ones(2), rank + 1.0)
    assert np.allclose(found, (size + 1) / 2 if rank == size - 1 else 0)


def test_alltoall_goes_back_where_it_came_from(hvd, run, rank, size):
    splits = list(range(1, size + 1))
    found = gradient(run, lambda x: hvd.alltoall(x, splits=splits)[0], np.ones((sum(splits), 2)), rank + 1.0)
    assert np.allclose(found, np.repeat(np.arange(1.0, size + 1), splits)[:, None])
    assert np.allclose(gradient(run, hvd.alltoall, np.ones(size), rank + 1.0), np.arange(1.0, size + 1))


def test_reducescatter(hvd, run, rank, size):
    rows = np.concatenate([np.full(len(part), each + 1.0)
                           for each, part in enumerate(np.array_split(np.arange(size + 1), size))])
    for op, factor in ((hvd.Sum, size), (hvd.Average, 1)):
        found = gradient(run, lambda x, op=op: hvd.reducescatter(x, op=op), np.ones(size + 1), rank + 1.0)
        assert np.allclose(found, factor * rows)
        found = gradient(run, lambda x, op=op: sum(hvd.grouped_reducescatter([x, 2 * x], op=op)), np.ones(size + 1),
                         rank + 1.0)
        assert np.allclose(found, 3 * factor * rows)


@pytest.fixture
def recorded(rank):
    """A function that records a loss of two variables and a table, and returns the tape, the loss and them."""
    x, frozen, table = tf.Variable([rank + 1.0, 2.0]), tf.Variable(1.0), tf.Variable(tf.ones([5, 2]))

    def record(persistent=False):
        with tf.GradientTape(persistent=persistent) as tape:
            loss = tf.reduce_sum(x * x) + tf.reduce_sum(tf.nn.embedding_lookup(table, [rank, rank + 1]))
        return tape, loss, [x, frozen, table]

    return record


def expected_of(size):
    table = np.zeros((5, 2))
    for rank in range(size):
        table[rank] += 1
        table[rank + 1] += 1
    return [size + 1.0, 4.0], table / size


@pytest.mark.parametrize("arguments", [{}, {"sparse_as_dense": True}, {"groups": 1},
                                       {"groups": 2, "sparse_as_dense": True},
                                       {"gradient_predivide_factor": 2.0, "sparse_as_dense": True}],
                         ids=lambda each: " ".join(each) or "plain")
@pytest.mark.parametrize("mode", [lambda function: function, tf.function], ids=["at_once", "in_function"])
def test_a_tape_averages_dense_and_sparse_gradients_and_keeps_none(hvd, size, recorded, mode, arguments):
    @mode
    def step():
        tape, loss, sources = recorded()
        distributed = hvd.DistributedGradientTape(tape, **arguments)
        assert type(distributed).__name__ == "GradientTape" and isinstance(distributed, tf.GradientTape)
        x, frozen, table = distributed.gradient(loss, sources)
        assert frozen is None
        assert isinstance(table, tf.IndexedSlices) is not arguments.get("sparse_as_dense", False)
        return x, tf.convert_to_tensor(table)

    for _ in range(2):
        for found, expected in zip(step(), expected_of(size)):
            assert np.allclose(found, expected)


def test_a_tape_takes_groups_of_variables_and_single_sources(hvd, size, recorded):
    tape, loss, (x, _, table) = recorded(persistent=True)
    distributed = hvd.DistributedGradientTape(tape, groups=[[x, table]], sparse_as_dense=True)
    first, second = distributed.gradient(loss, (x, table))
    assert np.allclose(first, expected_of(size)[0]) and np.allclose(second, expected_of(size)[1])
    assert np.allclose(distributed.gradient(loss, x), expected_of(size)[0])
    assert np.allclose(distributed.gradient(loss, {"x": x}, use_generic_names=True)["x"], expected_of(size)[0])


@pytest.mark.parametrize("within", [False, True])
def test_a_tape_may_be_wrapped_while_it_records(hvd, rank, size, within):
    variable = tf.Variable([1.0, 2.0])
    for _ in range(20):
        with tf.GradientTape() as tape:
            distributed = hvd.DistributedGradientTape(tape)
            target = tf.reduce_sum(variable * variable) * (rank + 1)
            if within:
                found = distributed.gradient(target, variable)
        if not within:
            found = distributed.gradient(target, variable)
        assert np.allclose(found, np.array([2.0, 4.0]) * (size + 1) / 2)
    with pytest.raises(RuntimeError, match="persistent"):
        tape.gradient(target, variable)


def test_a_tape_on_a_process_set_that_is_added_again(hvd, rank, size):
    if size < 3:
        pytest.skip("needs sets of two ranks")
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
    variable, of_two = tf.Variable([1.0, 2.0]), hvd.ProcessSet([0, 1])

    def check():
        if rank < 2:
            with tf.GradientTape() as tape:
                target = tf.reduce_sum(variable) * (rank + 1)
            assert np.allclose(hvd.DistributedGradientTape(tape, process_set=of_two).gradient(target, variable), 1.5)

    hvd.add_process_set(of_two)
    check()
    hvd.remove_process_set(of_two)
    other = hvd.add_process_set([1, 2])
    hvd.add_process_set(of_two)
    check()
    for each in (other, of_two):
        assert hvd.remove_process_set(each)


def test_local_sources_keep_their_own_gradients(hvd, rank, size, recorded):
    for scale in (True, False):
        tape, loss, (x, _, table) = recorded(persistent=True)
        distributed = hvd.DistributedGradientTape(tape, sparse_as_dense=True, scale_local_gradients=scale)
        distributed.register_local_source(x)
        local, everyone = distributed.get_local_and_global_gradients(loss, [x, table])
        assert local[0][0] is x and everyone[0][0] is table
        assert np.allclose(local[0][1], np.array([2.0 * (rank + 1), 4.0]) / (size if scale else 1))
        assert np.allclose(everyone[0][1], expected_of(size)[1])


@pytest.mark.parametrize("mode", [lambda function: function, tf.function], ids=["at_once", "in_function"])
@pytest.mark.parametrize("generic", [False, True])
def test_ranks_may_have_different_numbers_of_local_sources(hvd, rank, size, mode, generic):
    own, shared = [tf.Variable(1.0) for _ in range(rank)], [tf.Variable(2.0), tf.Variable([3.0])]

    @mode
    def step():
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(each) for each in own + shared]) * (rank + 1)
        distributed = hvd.DistributedGradientTape(tape, scale_local_gradients=False)
        for each in own:
            distributed.register_local_source(each)
        return distributed.gradient(loss, own + shared, use_generic_names=generic)

    found = step()
    assert np.allclose(found[:rank], rank + 1.0) and all(np.allclose(each, (size + 1) / 2) for each in found[rank:])


def test_two_models_that_one_inner_function_trains_keep_their_gradients_apart(hvd, rank, size):
    models = [tf.keras.Sequential([tf.keras.layers.Input((64,)), tf.keras.layers.Dense(64)]) for _ in range(2)]
    start = [[each.numpy() for each in model.trainable_variables] for model in models]
    for i, model in enumerate(models):
        for j, each in enumerate(model.trainable_variables):
            each.assign(hvd.broadcast(start[i][j], 0))
            start[i][j] = each.numpy()

    @tf.function
    def step(model, factor):
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(each) for each in model.trainable_variables]) * factor * (rank + 1)
        tape = hvd.DistributedGradientTape(tape)
        for each, gradient in zip(model.trainable_variables, tape.gradient(loss, model.trainable_variables)):
            each.assign_sub(gradient)

    @tf.function
    def both(rows):  # another number of rows is another trace
        step(models[0], 1.0 + 0 * len(rows))
        step(models[1], 10.0)

    for i in range(20):
        both(tf.zeros([7 if i % 5 == rank else 8]))
    for i, model in enumerate(models):
        for each, first in zip(model.trainable_variables, start[i]):
            assert np.allclose(each.numpy(), first - 20 * (1.0, 10.0)[i] * (size + 1) / 2, atol=1e-3)


def test_a_partial_tape_leaves_layers_out(hvd, rank, size):
    here, there = tf.keras.layers.Dense(1, use_bias=False), tf.keras.layers.Dense(1, use_bias=False)
    x = tf.fill([1, 1], rank + 1.0)
    here(x), there(x)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(here(x) + there(x))
    tape = hvd.PartialDistributedGradientTape(tape, local_layers=here, scale_local_gradients=False)
    first, second = tape.gradient(loss, [*here.trainable_weights, *there.trainable_weights])
    assert np.allclose(first, rank + 1.0) and np.allclose(second, (size + 1) / 2)
    with pytest.raises(ValueError, match="local_layers"):
        hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=[3])


def test_arguments_of_a_tape_are_checked(hvd):
    with pytest.raises(ValueError, match="gradient_predivide_factor"):
        hvd.DistributedGradientTape(tf.GradientTape(), gradient_predivide_factor=2.0, op=hvd.Sum)
    for groups in (-1, "two", 1.5, [1, 2]):
        with pytest.raises(ValueError, match="groups"):
            hvd.DistributedGradientTape(tf.GradientTape(), groups=groups)
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedGradientTape(hvd.DistributedGradientTape(tf.GradientTape()))
    with pytest.warns(DeprecationWarning, match="num_groups"):
        hvd.DistributedGradientTape(tf.GradientTape(), num_groups=2)


@pytest.mark.parametrize("shape", [(3,), (2, 2, 3)], ids=["rows", "images"])
def test_synchronized_batch_normalization_is_that_of_the_whole_batch(hvd, rank, size, shape):
    whole = np.random.default_rng(5).normal(size=(4 * size, *shape)).astype(np.float32)
    not_fused = {} if hasattr(tf.keras, "Variable") else {"fused": False}  # of Keras 2, whose fused variance is another
    ours, one = hvd.SyncBatchNormalization(), tf.keras.layers.BatchNormalization(**not_fused)
    assert ours.name.startswith("sync_batch_normalization")
    mine = tf.constant(whole[4 * rank:4 * rank + 4])
    with tf.GradientTape() as tape:
        tape.watch(mine)
        output = ours(mine, training=True)
        loss = tf.reduce_sum(output ** 3)
    expected = one(whole, training=True)
    assert np.allclose(output, expected[4 * rank:4 * rank + 4], atol=1e-4)
    assert np.allclose(ours.moving_variance, one.moving_variance, atol=1e-5)
    assert tape.gradient(loss, mine).shape == mine.shape
    with pytest.raises(ValueError, match="fused"):
        hvd.SyncBatchNormalization(fused=True)
