"""What wrong input gets, and when the job ends."""
import numpy as np
import pytest
import tensorflow as tf

ERRORS = tf.errors


def test_ranks_that_disagree_get_an_error_and_go_on(hvd, rank, size):
    if size < 2:
        pytest.skip("needs two ranks")
    for _ in range(2):
        with pytest.raises(ERRORS.FailedPreconditionError, match="shapes"):
            hvd.allreduce(tf.ones(rank + 1))
        with pytest.raises(ERRORS.FailedPreconditionError):
            hvd.allreduce(tf.ones(2, tf.float32 if rank else tf.float64))
        with pytest.raises(ERRORS.FailedPreconditionError):
            hvd.broadcast(tf.ones(2), rank)
        with pytest.raises(ERRORS.FailedPreconditionError):
            hvd.allgather(tf.ones([2, rank + 1]))
        with pytest.raises(ERRORS.FailedPreconditionError):
            hvd.allreduce(tf.ones(2), op=hvd.Sum, prescale_factor=1.0 + rank)
        assert hvd.allreduce(tf.ones(2), op=hvd.Sum).numpy().tolist() == [size, size]


def test_in_a_function_others_that_wait_are_not_held_up(hvd, rank, size):
    if size < 2:
        pytest.skip("needs two ranks")

    @tf.function
    def one_fails(x, y):
        return hvd.allreduce(x, name="fails"), [hvd.allreduce(y + i, name=f"passes {i}") for i in range(10)]

    with pytest.raises(ERRORS.FailedPreconditionError):
        one_fails(tf.ones(rank + 1), tf.ones(2))
    assert (hvd.allreduce(tf.ones(2), op=hvd.Sum).numpy() == size).all()


def test_wrong_arguments_get_an_error_at_once(hvd, size):
    with pytest.raises(ERRORS.InvalidArgumentError, match="root"):
        hvd.broadcast(tf.ones(2), size)
    with pytest.raises(ERRORS.InvalidArgumentError, match="splits"):
        hvd.alltoall(tf.ones(1), splits=[2] * size)
    with pytest.raises(ERRORS.InvalidArgumentError, match="splits"):
        hvd.alltoall(tf.ones(1), splits=[0] * (size + 1))
    with pytest.raises(ERRORS.InvalidArgumentError, match="splits"):
        hvd.alltoall(tf.ones(1), splits=[[0] * size])
    if size > 1:
        with pytest.raises(ERRORS.InvalidArgumentError):
            hvd.alltoall(tf.ones(size + 1))
    with pytest.raises((ERRORS.InvalidArgumentError, ValueError)):
        hvd.reducescatter(tf.constant(1.0))
    with pytest.raises((ERRORS.InvalidArgumentError, ValueError)):
        tf.function(hvd.reducescatter)(tf.constant(1.0))
    with pytest.raises((ERRORS.InvalidArgumentError, ERRORS.FailedPreconditionError)):
        hvd.allgather(tf.constant(1.0))
    for op in (hvd.Min, hvd.Adasum):
        with pytest.raises(ERRORS.AbortedError):
            hvd.reducescatter(tf.ones(4), op=op)
    with pytest.raises(ValueError, match="op is one of"):
        hvd.allreduce(tf.ones(2), op=17)
    with pytest.raises((ERRORS.InvalidArgumentError, TypeError, ValueError), match="complex"):
        hvd.allreduce(tf.constant([1j]))
    with pytest.raises(TypeError, match="not registered"):
        hvd.allreduce(tf.ones(2), process_set=hvd.ProcessSet([0]))


def test_before_init_and_after_shutdown_there_is_a_named_error(hvd):
    @tf.function
    def step(x):
        return hvd.allreduce(x), hvd.size_op()

    step(tf.ones(2))
    hvd.barrier()
    hvd.shutdown()
    with pytest.raises(ERRORS.FailedPreconditionError, match=r"hvd\.init"):
        hvd.allreduce(tf.ones(2))
    with pytest.raises(ERRORS.FailedPreconditionError):
        step(tf.ones(2))
    with pytest.raises(ERRORS.FailedPreconditionError):
        hvd.rank_op()
    with pytest.raises(ValueError):
        hvd.rank()
    hvd.init()
    assert np.allclose(step(tf.ones(2))[0], 1)


def test_shutdown_ends_operations_that_wait_for_another_rank(hvd, rank, size):
    if size < 2:
        pytest.skip("needs two ranks")
    if rank == 0:
        hvd.shutdown()
    else:
        with pytest.raises((ERRORS.UnknownError, ERRORS.FailedPreconditionError)):
            hvd.allreduce(tf.ones(2), name="only here")
        hvd.shutdown()


def test_what_needs_a_graph_says_that(hvd):
    with pytest.raises(RuntimeError, match="broadcast_variables"):
        hvd.broadcast_global_variables(0)


def test_parts_are_found_in_the_package(hvd):
    assert hvd.elastic.run and hvd.checkpoint.save and hvd.data and hvd.callbacks and hvd.SyncBatchNormalization
    with pytest.raises(AttributeError, match="no attribute 'elastics'"):
        hvd.elastics


def test_torch_in_the_same_process_shares_the_job(hvd, rank, size):
    torch = pytest.importorskip("torch")
    import horovod.torch as of_torch
    assert of_torch.is_initialized() and of_torch.rank() == rank
    handle = of_torch.allreduce_async(torch.ones(3), op=of_torch.Sum, name="both use this name")
    found = hvd.allreduce(tf.ones(2), op=hvd.Sum, name="both use this name")
    assert (found.numpy() == size).all() and (of_torch.synchronize(handle) == size).all()


def test_ctypes_finds_the_functions_of_c(hvd, rank, size):
    from horovod.tensorflow import mpi_ops
    assert mpi_ops.MPI_LIB_CTYPES.horovod_rank() == rank and mpi_ops.MPI_LIB_CTYPES.horovod_size() == size
    assert mpi_ops.MPI_LIB.__name__ == "horovod.tensorflow.mpi_lib"
