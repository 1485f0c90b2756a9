"""What TensorFlow makes of the operations: nothing is computed early, merged or left out, and they overlap."""
import numpy as np
import pytest
import tensorflow as tf

from horovod import _core


def test_an_allreduce_of_a_constant_is_not_computed_beforehand(hvd, size):
    @tf.function
    def constant():
        return hvd.allreduce(tf.constant([1.0, 2.0]), op=hvd.Sum)

    before = _core.counter("batches")
    for _ in range(3):
        assert (constant().numpy() == [size, 2 * size]).all()
    assert _core.counter("batches") == before + 3


def test_equal_ones_are_not_merged_and_unused_ones_run(hvd, size):
    @tf.function
    def twice(x):
        hvd.allreduce(x, op=hvd.Sum, name="unused")
        return hvd.allreduce(x, op=hvd.Sum) + hvd.allreduce(x, op=hvd.Sum)

    names = [node.name for node in twice.get_concrete_function(tf.ones(2)).graph.as_graph_def().node
             if node.op == "HorovodAllreduce"]
    assert len(names) == len(set(names)) == 3
    before = _core.counter("operations")
    assert (twice(tf.ones(2)).numpy() == 2 * size).all()
    assert _core.counter("operations") == before + 3


def test_a_function_that_one_rank_traces_anew_meets_the_others(hvd, rank, size):
    def step(x):
        return hvd.allreduce(x, op=hvd.Sum) + tf.cond(x[0] > 0, lambda: hvd.allreduce(2 * x, op=hvd.Sum), lambda: x)

    function = tf.function(step)
    for i in range(4):
        if i > 0 and rank == 0:
            function = tf.function(step)  # traced again on this rank alone
        assert (function(tf.fill([2], 1.0)).numpy() == 3 * size).all()


def test_a_function_and_one_that_it_calls_do_not_take_each_others_tensors(hvd, size):
    @tf.function
    def inner(x):
        return hvd.allreduce(x, op=hvd.Sum)

    @tf.function
    def outer(x):
        return hvd.allreduce(x, op=hvd.Sum), inner(10 * x), inner(100 * x)

    for _ in range(5):
        assert [each.numpy() for each in outer(tf.constant(1.0))] == [size, 10 * size, 100 * size]


def test_iterations_of_a_loop_do_not_take_each_others_tensors(hvd, rank, size):
    @tf.function
    def loop(n):
        sums = tf.TensorArray(tf.float32, n)
        for i in tf.range(n):
            sums = sums.write(i, hvd.allreduce(tf.cast(i, tf.float32) + rank, op=hvd.Sum))
        return sums.stack()

    for _ in range(3):
        assert np.allclose(loop(20), np.arange(20.0) * size + sum(range(size)))


def test_a_loop_of_tensorflow_1_has_iterations_in_flight(hvd, size):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        _, total = tf.compat.v1.while_loop(
            lambda i, total: i < 30,
            lambda i, total: (i + 1, total + hvd.allreduce(tf.cast(i, tf.float32), op=hvd.Sum)),
            (0, 0.0), parallel_iterations=10)
        assert session.run(total) == size * sum(range(30))


def test_operations_of_a_function_overlap_and_fuse(hvd, size):
    count = 200

    @tf.function
    def many(tensors):
        return [hvd.allreduce(each, op=hvd.Sum, name=f"one of many {i}") for i, each in enumerate(tensors)]

    tensors = [tf.fill([50], float(i)) for i in range(count)]
    many(tensors)
    before = _core.counter("batches")
    for i, found in enumerate(many(tensors)):
        assert (found.numpy() == i * size).all()
    if size > 1:  # one rank has nobody to agree with, and carries out each operation as it comes
        assert _core.counter("batches") - before < count / 4


def test_gradients_of_an_eager_tape_overlap_and_fuse(hvd):
    variables = [tf.Variable(tf.fill([50], float(i))) for i in range(100)]

    def step():
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(each * each) for each in variables])
        return hvd.DistributedGradientTape(tape).gradient(loss, variables)

    step()
    before = _core.counter("batches")
    step()
    assert hvd.size() == 1 or _core.counter("batches") - before < 25


def test_shapes_are_known_as_far_as_they_can_be(hvd, size):
    @tf.function
    def shapes(x):
        return [hvd.allreduce(x).shape, hvd.broadcast(x, 0).shape, hvd.allgather(x).shape, hvd.reducescatter(x).shape,
                hvd.alltoall(x).shape]

    graph = shapes.python_function
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [4, 3])
        same, root, *others = graph(x)
        assert same == root == [4, 3] and all(each.as_list() == [None, 3] for each in others)
        assert graph(tf.compat.v1.placeholder(tf.float32))[2].rank is None


def test_a_function_for_xla_is_refused_by_name(hvd):
    with pytest.raises(NotImplementedError, match="HorovodAllreduce cannot be compiled by XLA: .*jit_compile"):
        tf.function(hvd.allreduce, jit_compile=True)(tf.ones(2))


def test_names_of_the_user_and_their_scopes(hvd, size):
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [1], name="input")
        assert hvd.allreduce(x, op=hvd.Sum).op.name == "HorovodAllreduce_input_0"
        with tf.name_scope("scope"):
            named = hvd.allreduce(x, op=hvd.Sum, name="mine").op
            assert named.get_attr("tensor_name") == b"scope/mine" == named.name.encode()
            bare = hvd.allreduce(x, op=hvd.Sum, name="mine", ignore_name_scope=True).op
            assert bare.get_attr("tensor_name") == b"mine_1"
        assert graph.get_operation_by_name("scope/mine")
