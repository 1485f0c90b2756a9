"""Every collective, in all modes of TensorFlow."""
import numpy as np
import pytest
import tensorflow as tf

REDUCED = ["uint8", "int8", "int32", "int64", "float16", "float32", "float64", "bfloat16"]
MOVED = REDUCED + ["uint16", "int16", "bool"]


def array(dtype, *shape, first=0):
    values = np.arange(first, first + np.prod(shape, dtype=int)) % 2
    return values.reshape(shape).astype(tf.as_dtype(dtype).as_numpy_dtype)


@pytest.mark.parametrize("dtype", REDUCED)
def test_allreduce_adds_all_types(hvd, run, size, dtype):
    value = array(dtype, 3, 2)
    result = run(lambda x: hvd.allreduce(x, op=hvd.Sum), value)
    assert result.dtype == value.dtype and (result == value * size).all()
    group = run(lambda x: hvd.grouped_allreduce([x, x + x], op=hvd.Sum), value)
    assert (group[0] == value * size).all() and (group[1] == value * 2 * size).all()


def test_allreduce_averages_by_default_and_integers_are_truncated(hvd, run, rank, size):
    assert (run(hvd.allreduce, np.array([rank, 1], np.int32)) == [sum(range(size)) // size, 1]).all()
    assert np.allclose(run(hvd.allreduce, np.array([rank, 1.0])), [sum(range(size)) / size, 1])
    with pytest.warns(DeprecationWarning):
        assert (run(lambda x: hvd.allreduce(x, average=False), np.array([1.0])) == size).all()
    with pytest.raises(ValueError, match="supersedes average"):
        hvd.allreduce(tf.constant([1.0]), average=True, op=hvd.Sum)


def test_allreduce_has_all_reductions(hvd, run, rank, size):
    value = np.array([rank + 1.0, -rank])
    assert (run(lambda x: hvd.allreduce(x, op=hvd.Min), value) == [1, 1 - size]).all()
    assert (run(lambda x: hvd.allreduce(x, op=hvd.Max), value) == [size, 0]).all()
    assert (run(lambda x: hvd.allreduce(x, op=hvd.Product), value)[0] == np.prod(np.arange(1, size + 1.0)))
    if size & (size - 1) == 0:
        same = run(lambda x: hvd.allreduce(x, op=hvd.Adasum), np.array([1.0, 2.0]))
        assert np.allclose(same, [1, 2])  # of equal vectors


def test_allreduce_scales_before_and_after(hvd, run, size):
    result = run(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0),
                 np.array([3.0], np.float32))
    assert (result == 6 * size).all()
    integers = run(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5), np.array([3], np.int32))
    assert (integers == size).all()


def test_compression_gives_the_type_back(hvd, run, size):
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        result = run(lambda x, how=compression: hvd.allreduce(x, compression=how, op=hvd.Sum),
                     np.array([1.5], np.float32))
        assert result.dtype == np.float32 and (result == 1.5 * size).all()
    assert (run(lambda x: hvd.allreduce(x, compression=hvd.Compression.fp16), np.array([3])) == 3).all()


def test_scalars_and_tensors_without_elements(hvd, run, rank, size):
    assert run(lambda x: hvd.allreduce(x, op=hvd.Sum), np.float32(2)) == 2 * size
    assert run(lambda x: hvd.broadcast(x, size - 1), np.int64(rank)) == size - 1
    assert run(hvd.allreduce, np.empty((0, 3))).shape == (0, 3)
    assert run(hvd.allgather, np.empty((0, 3))).shape == (0, 3)
    assert run(hvd.alltoall, np.empty((0, 3))).shape == (0, 3)
    assert run(lambda x: hvd.broadcast(x, 0), np.empty((2, 0))).shape == (2, 0)


@pytest.mark.parametrize("dtype", MOVED)
def test_allgather_of_different_rows(hvd, run, rank, size, dtype):
    value = array(dtype, rank + 1, 3, first=rank)
    expected = np.concatenate([array(dtype, each + 1, 3, first=each) for each in range(size)])
    assert (run(hvd.allgather, value) == expected).all()
    both = run(lambda x: hvd.grouped_allgather([x, tf.ones([rank, 2])]), value)
    assert (both[0] == expected).all() and both[1].shape == (sum(range(size)), 2)


@pytest.mark.parametrize("dtype", MOVED)
def test_broadcast_gives_the_roots_values(hvd, run, rank, size, dtype):
    for root in range(size):
        result = run(lambda x, root=root: hvd.broadcast(x, root), array(dtype, 2, 2, first=rank))
        assert (result == array(dtype, 2, 2, first=root)).all()


@pytest.mark.parametrize("dtype", MOVED)
def test_alltoall_by_splits_tells_what_came(hvd, run, rank, size, dtype):
    value = np.full((size * (size + 1) // 2, 2), rank % 2).astype(tf.as_dtype(dtype).as_numpy_dtype)
    result, received = run(lambda x: hvd.alltoall(x, splits=list(range(1, size + 1))), value)
    assert received.dtype == np.int32 and (received == rank + 1).all()
    assert (result == np.repeat(np.arange(size) % 2, rank + 1)[:, None].astype(value.dtype)).all()


def test_alltoall_of_equal_parts(hvd, run, rank, size):
    result = run(hvd.alltoall, np.arange(2 * size) + 100 * rank)
    assert (result == [100 * each + 2 * rank + i for each in range(size) for i in range(2)]).all()


def test_reducescatter_gives_the_first_ranks_more_rows(hvd, run, rank, size):
    value = np.arange(size + 1.0)[:, None] * np.ones((1, 2))
    mine = np.array_split(value, size)[rank]
    assert np.allclose(run(hvd.reducescatter, value), mine)
    assert np.allclose(run(lambda x: hvd.reducescatter(x, op=hvd.Sum, prescale_factor=2.0), value), 2 * size * mine)
    group = run(lambda x: hvd.grouped_reducescatter([x, 2 * x], op=hvd.Sum), value)
    assert np.allclose(group[0], size * mine) and np.allclose(group[1], 2 * size * mine)


def test_slices_are_gathered(hvd, run, rank, size):
    def reduced(values, op):
        slices = tf.IndexedSlices(values, tf.range(rank + 1), tf.constant([size, 2]))
        return tf.convert_to_tensor(hvd.allreduce(slices, op=op))

    expected = np.array([[size - i] * 2 for i in range(size)], float)
    assert np.allclose(run(lambda x: reduced(x, hvd.Sum), np.ones((rank + 1, 2))), expected)
    assert np.allclose(run(lambda x: reduced(x, hvd.Average), np.ones((rank + 1, 2))), expected / size)


def test_a_group_of_dense_tensors_and_slices_keeps_its_order(hvd, size):
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([1, 2]))
    first, second, third = hvd.grouped_allreduce([tf.ones(3), slices, tf.ones(2)], op=hvd.Sum)
    assert (first.numpy() == size).all() and (third.numpy() == size).all()
    assert isinstance(second, tf.IndexedSlices) and second.values.shape[0] == size
    assert hvd.grouped_allreduce([]) == [] and hvd.grouped_allgather([]) == []


def test_slices_take_no_other_reduction_and_no_factors(hvd):
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([1, 2]))
    for arguments in ({"op": hvd.Min}, {"op": hvd.Adasum}, {"prescale_factor": 2.0}, {"postscale_factor": 2.0}):
        with pytest.raises(NotImplementedError, match="IndexedSlices"):
            hvd.allreduce(slices, **arguments)


def test_objects_travel(hvd, rank, size):
    assert hvd.broadcast_object({"rank": rank}, size - 1) == {"rank": size - 1}
    assert hvd.allgather_object(rank) == list(range(size))
    same = hvd.broadcast_object_fn(0)
    assert same(rank) == 0 and same([rank]) == [0]


def test_variables_get_the_roots_values(hvd, rank):
    variables = [tf.Variable([rank, 1]), tf.Variable(float(rank)), tf.Variable([True, rank == 0])]
    hvd.broadcast_variables(variables, 0)
    assert [each.numpy().tolist() for each in variables] == [[0, 1], 0.0, [True, True]]
    variables[0].assign([rank, 2])
    assert hvd.broadcast_(variables, 0)[0].numpy().tolist() == [0, 2]


def test_place_in_the_job_is_known_when_the_graph_runs(hvd, run, rank, size):
    assert run(lambda: [hvd.rank_op(), hvd.size_op(), hvd.local_rank_op(), hvd.local_size_op(),
                        hvd.process_set_included_op()]) == [rank, size, hvd.local_rank(), hvd.local_size(), 1]


def test_join_lets_others_go_on(hvd, rank, size):
    for step in range(rank + 1):
        result = hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name="until it joins")
        assert result.numpy() == size - step
    assert int(hvd.join()) in range(size)
    assert int(tf.function(hvd.join)()) in range(size)


def test_process_sets_work_apart(hvd, run, rank, size):
    if size < 2:
        pytest.skip("needs two ranks")
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
    mine = [hvd.add_process_set(range(first, size, 2)) for first in range(2)][rank % 2]
    value = np.array([float(rank)])
    members = list(range(rank % 2, size, 2))
    assert (run(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=mine), value) == sum(members)).all()
    assert (run(lambda x: hvd.allgather(x, process_set=mine), value) == members).all()
    assert (run(lambda x: hvd.broadcast(x, members[-1], process_set=mine), value) == members[-1]).all()
    assert (run(lambda x: hvd.reducescatter(x, process_set=mine), np.ones(len(members)))).shape == (1,)
    assert run(lambda: hvd.size_op(mine.process_set_id)) == len(members)
    with tf.GradientTape() as tape:
        x = tf.Variable(float(rank))
        y = x * x
    gradient = hvd.DistributedGradientTape(tape, op=hvd.Sum, process_set=mine).gradient(y, [x])[0]
    assert gradient.numpy() == 2 * sum(members)
    other = hvd.ProcessSet([0])
    other.process_set_id = 123
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([1, 2]))
    with pytest.raises(ValueError):
        hvd.allreduce(slices, process_set=other)
    with pytest.raises(tf.errors.InvalidArgumentError):
        hvd.allreduce(tf.ones(2), process_set=other)
    hvd.barrier()
    hvd.shutdown()
