"""hvd.elastic of TensorFlow and tf.keras: states, and trainings that begin again after a failure."""
import contextlib
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow.keras as hvd_keras
from horovod.common import elastic
from horovod.common.exceptions import HorovodInternalError

keras = tf.keras
DATA = np.random.default_rng(3).normal(size=(24, 4)).astype(np.float32)
TARGETS = DATA.sum(1, keepdims=True)


def model_for(optimizer, seed=1):
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    seeded = np.random.default_rng(seed)
    model.set_weights([seeded.normal(size=each.shape) for each in model.get_weights()])
    model.compile(optimizer=optimizer, loss="mse")
    return model


def values_of(model):
    optimizer = model.optimizer.variables
    more = optimizer() if callable(optimizer) and not isinstance(optimizer, (list, tuple)) else optimizer
    return [each.numpy().tolist() for each in [*model.weights, *more]]


def test_a_state_of_variables_is_saved_restored_and_sent(hvd, rank):
    variables = [tf.Variable([1.0 + rank, 2.0]), tf.Variable(rank, dtype=tf.int64)]
    state = hvd.elastic.TensorFlowState(variables, batch=20 + rank, epoch=10 + rank)
    state.sync()
    assert variables[0].numpy().tolist() == [1, 2] and int(variables[1]) == 0 and (state.batch, state.epoch) == (20, 10)
    variables[0].assign([7.0, 7.0])
    state.batch = 21
    state.restore()
    assert variables[0].numpy().tolist() == [1, 2] and state.batch == 20
    variables[0].assign([8.0, 8.0])
    state.batch = 22
    state.commit()
    variables[0].assign([9.0, 9.0])
    state.restore()
    assert variables[0].numpy().tolist() == [8, 8] and state.batch == 22


@pytest.mark.parametrize("kind", ["variables", "session", "model"])
def test_a_commit_that_is_interrupted_is_restored_whole(hvd, monkeypatch, kind):
    with contextlib.ExitStack() as stack:
        session, make = None, hvd.elastic.TensorFlowState
        if kind == "session":
            stack.enter_context(tf.Graph().as_default())
            session = stack.enter_context(tf.compat.v1.Session())
            variables = [tf.compat.v1.get_variable("v", initializer=[1.0, 1.0])]
            session.run(tf.compat.v1.global_variables_initializer())
            state = make(session=session, step=1, seen=[1.0])
        elif kind == "variables":
            variables = [tf.Variable([1.0, 1.0])]
            state = make(variables, step=1, seen=[1.0])
        else:
            model = model_for("sgd")
            variables = model.weights
            state = hvd.elastic.TensorFlowKerasState(model, step=1, seen=[1.0])

        def set_all(number):
            for each in variables:
                value = np.full(each.shape, number, np.float32)
                each.assign(value) if session is None else each.load(value, session)
            state.step, state.seen[:] = number, [float(number)]

        def numbers():
            found = [each.numpy() for each in variables] if session is None else session.run(variables)
            return {*np.concatenate([each.ravel() for each in found]).tolist(), state.step, *state.seen}

        def interrupt(*_):
            raise KeyboardInterrupt

        set_all(1)
        state.commit()
        set_all(2)
        for what in ("_contents_of", "_copies"):
            with monkeypatch.context() as patch:
                patch.setattr(state, what, interrupt)
                with pytest.raises(KeyboardInterrupt):
                    state.save()
        set_all(3)
        state.restore()
        assert numbers() == {1}
        set_all(4)
        state.commit()
        set_all(5)
        state.restore()
        assert numbers() == {4}


def test_a_live_state_is_refused_by_name(hvd):
    with pytest.raises(ValueError, match="TensorFlowState: live=True: expected hvd.elastic.TorchState"):
        hvd.elastic.TensorFlowState([], live=True)
    with pytest.raises(ValueError, match="State: live=True: expected hvd.elastic.TorchState"):
        hvd_keras.elastic.KerasState(model_for("sgd"), live=True)


def test_a_state_of_a_session(hvd, rank):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("v", initializer=[1.0 + rank, 2.0])
        session.run(tf.compat.v1.global_variables_initializer())
        state = hvd.elastic.TensorFlowState(session=session, step=rank)
        state.sync()
        assert session.run(variable).tolist() == [1, 2] and state.step == 0
        variable.load([5.0, 5.0], session)
        state.restore()
        assert session.run(variable).tolist() == [1, 2]


@pytest.mark.parametrize("kind", ["TensorFlowKerasState", "KerasState"])
def test_a_state_of_a_model_is_saved_restored_and_sent(hvd, rank, kind):
    make = getattr(hvd.elastic if kind == "TensorFlowKerasState" else hvd_keras.elastic, kind)
    model = model_for(keras.optimizers.Adam(0.1), seed=rank)
    state = make(model, batch=20 + rank)
    state.sync()
    everyone = hvd.allgather_object(values_of(model))
    assert all(each == everyone[0] for each in everyone) and state.batch == 20
    model.train_on_batch(DATA, TARGETS)
    assert values_of(model) != everyone[0]
    state.restore()
    assert values_of(model) == everyone[0]
    with pytest.raises(ValueError, match="build it first"):
        make(keras.Sequential([keras.layers.Dense(1)]))


def train_with_tape(hvd, rank, size, fails_at, passes=1):
    model = model_for(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9),
                                               backward_passes_per_step=passes))
    failures = [fails_at]

    @tf.function(reduce_retracing=True)
    def step(data, targets):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(data, training=True) - targets) ** 2)
        model.optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))

    @hvd.elastic.run
    def train(state):
        while state.batch < 6:
            if state.batch == failures[0] and rank == size - 1:
                failures[0] = None
                raise HorovodInternalError("on purpose")
            part = slice(state.batch * 4 + rank, state.batch * 4 + 4, size)
            step(tf.constant(DATA[part]), tf.constant(TARGETS[part]))
            state.batch += 1
            if state.batch % 2 == 0:
                state.commit()
        return state.batch

    assert train(hvd.elastic.TensorFlowKerasState(model, batch=0)) == 6
    return values_of(model)


def test_a_failure_changes_no_bit_of_a_training(hvd, rank, size):
    assert train_with_tape(hvd, rank, size, 3) == train_with_tape(hvd, rank, size, None)


def test_a_failure_between_passes_of_a_step_counts_no_gradient_twice(hvd, rank, size):
    found = train_with_tape(hvd, rank, size, 3, passes=2)
    assert found == train_with_tape(hvd, rank, size, None, passes=2)


@contextlib.contextmanager
def graph_of_two_passes(hvd, **options):
    """Gives a session, its variables that a training goes on from, the operation of a pass and its placeholders."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        data, targets = v1.placeholder(tf.float32, [None, 4]), v1.placeholder(tf.float32, [None, 1])
        weights = v1.get_variable("weights", initializer=np.full((4, 1), 0.1, np.float32))
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.05), backward_passes_per_step=2,
                                             **options)
        step = optimizer.minimize(tf.reduce_mean((tf.matmul(data, weights) - targets) ** 2))
        session.run(v1.global_variables_initializer())
        session.graph.finalize()  # as a MonitoredTrainingSession does
        yield session, [weights], step, (data, targets)


def train_a_graph(hvd, rank, size, fails_at, given, **options):
    failures = [fails_at]
    with graph_of_two_passes(hvd, **options) as (session, variables, step, places):
        @hvd.elastic.run
        def train(state):
            while state.batch < 6:
                if state.batch == failures[0] and rank == size - 1:
                    failures[0] = None
                    raise HorovodInternalError("on purpose")
                part = slice(state.batch * 4 + rank, state.batch * 4 + 4, size)
                session.run(step, dict(zip(places, (DATA[part], TARGETS[part]))))
                state.batch += 1
                if state.batch % 2 == 0:
                    state.commit()

        train(hvd.elastic.TensorFlowState(variables if given else None, session=session, batch=0))
        return [each.tolist() for each in session.run(variables)]


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("op", ["Average", "Adasum"])
def test_a_failure_between_passes_of_a_graph_counts_no_gradient_twice(hvd, rank, size, op, given):
    found = train_a_graph(hvd, rank, size, 3, given, op=getattr(hvd, op))
    assert found == train_a_graph(hvd, rank, size, None, given, op=getattr(hvd, op))


def test_a_commit_between_two_passes_of_a_graph_is_named(hvd, monkeypatch):
    monkeypatch.setattr(elastic.State, "_has_warned", False)
    with graph_of_two_passes(hvd) as (session, variables, step, places):
        state = hvd.elastic.TensorFlowState(session=session)
        assert {each.name for each in state.variables} == {each.name for each in variables}
        session.run(step, dict(zip(places, (DATA[:4], TARGETS[:4]))))
        with pytest.warns(UserWarning, match="found 1 of 2 backward passes"):
            state.commit()
        state.sync()  # as with a process that has joined and has done no pass
        assert state._passes_done() == (0, 2)
        for _ in range(2):
            session.run(step, dict(zip(places, (DATA[:4], TARGETS[:4]))))


def test_a_commit_between_two_passes_of_a_step_is_named(hvd, monkeypatch):
    monkeypatch.setattr(elastic.State, "_has_warned", False)
    model = model_for(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05), backward_passes_per_step=2))
    state = hvd.elastic.TensorFlowKerasState(model)
    model.train_on_batch(DATA[:4], TARGETS[:4])
    with pytest.warns(UserWarning, match="commit between two steps of the optimizer: found 1 of 2 backward passes"):
        state.commit()
    state.sync()  # as with a process that has joined and has done no pass
    assert model.optimizer._hvd.aggregation.passes_done() == 0
    for _ in range(2):
        model.train_on_batch(DATA[:4], TARGETS[:4])


def train_by_fit(hvd, rank, size, fails_at):
    model = model_for(hvd_keras.DistributedOptimizer(keras.optimizers.Adam(0.05)))
    failures = [fails_at]

    class Fails(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if failures[0] == (state.epoch, state.batch) and rank == size - 1:
                failures[0] = None
                raise HorovodInternalError("on purpose")

    @hvd_keras.elastic.run
    def train(state):
        elastic = hvd_keras.elastic
        first = state.batch * 4 + rank
        while state.epoch < 3:
            model.fit(DATA[first::size], TARGETS[first::size], batch_size=4 // size, shuffle=False, verbose=0, epochs=1,
                      callbacks=[elastic.UpdateBatchStateCallback(state), elastic.UpdateEpochStateCallback(state),
                                 Fails(), elastic.CommitStateCallback(state, 2)])
            first = rank

    state = hvd_keras.elastic.KerasState(model, batch=0, epoch=0)
    train(state)
    assert (state.batch, state.epoch) == (0, 3)
    return values_of(model)


def test_a_failure_within_fit_changes_no_bit_of_a_training(hvd, rank, size):
    assert train_by_fit(hvd, rank, size, (1, 3)) == train_by_fit(hvd, rank, size, None)


def test_callbacks_commit_and_count(hvd, rank, size):
    model = model_for("sgd")
    state = hvd_keras.elastic.KerasState(model, batch=0, epoch=5)
    commits, batches = [], []
    state.commit = lambda: commits.append((state.epoch, state.batch))
    elastic = hvd_keras.elastic
    spy = keras.callbacks.LambdaCallback(on_train_batch_end=lambda *_, **__: batches.append(state.batch))
    callbacks = [elastic.UpdateBatchStateCallback(state), elastic.UpdateEpochStateCallback(state), spy,
                 elastic.CommitStateCallback(state, batches_per_commit=4)]
    model.fit(DATA, TARGETS, batch_size=4, epochs=2, verbose=0, callbacks=callbacks)
    assert batches == [1, 2, 3, 4, 5, 6] * 2
    assert commits == [(5, 4), (6, 0), (6, 4), (7, 0)]
    model.fit(DATA, TARGETS, batch_size=4, initial_epoch=7, epochs=9, verbose=0, callbacks=callbacks)
    assert state.epoch == 9


def test_a_rank_that_is_killed_within_fit_does_not_end_the_others(size):
    if size > 1:
        pytest.skip("starts a job of its own")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    command = [os.environ.get("HOROVODRUN", "horovodrun"), "-np", "2", "--min-np", "1", "--oversubscribe",
               sys.executable, str(pathlib.Path(__file__).parent / "dying_in_fit.py")]
    job = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         timeout=300, check=False)
    assert job.returncode == 0 and "trained with 1 ranks" in job.stdout, job.stdout


def test_other_errors_leave_the_loop(hvd):
    @hvd.elastic.run
    def train(state):
        raise tf.errors.UnknownError(None, None, "Horovod: something else")

    with pytest.raises(tf.errors.UnknownError, match="something else"):
        train(hvd.elastic.TensorFlowState([tf.Variable(1.0)]))


def test_a_failure_of_an_operation_is_known_by_its_count(hvd, rank, size):
    if size == 1:
        pytest.skip("needs another rank that fails")
    hvd.elastic.forget_failures()
    with pytest.raises(tf.errors.UnknownError) as failed:
        if rank == 0:
            hvd.shutdown()
            raise tf.errors.UnknownError(None, None, "of another operation")
        hvd.allreduce(tf.ones(2), name="for which one rank is missing")
    assert (hvd.elastic.failure_of(failed.value) is not None) == (rank != 0)
    hvd.elastic.forget_failures()
    assert hvd.elastic.failure_of(failed.value) is None
    hvd.shutdown()
    hvd.init()
