"""Results whose size the caller did not know. Tensors use the result's memory without a copy, as long as they live."""
import gc

import pytest
import torch

from horovod import _core

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64,
          torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(4,), (4, 3), (0, 3), (4, 0)], ids=str)
def test_alltoall_of_every_type(hvd, rank, size, dtype, shape):
    given = torch.full((shape[0] * size, *shape[1:]), rank % 2, dtype=dtype)
    found = hvd.alltoall(given)
    assert found.dtype == dtype and found.shape == given.shape
    for sender, part in enumerate(found.chunk(size) if len(found) else []):
        assert torch.equal(part, torch.full(shape, sender % 2, dtype=dtype))


def test_results_outlive_their_handles_and_the_job(hvd, rank, size):
    gathered = hvd.allgather(torch.full((1000,), float(rank)), name="kept")
    received = hvd.alltoall(torch.full((1000 * size,), float(rank)), name="kept")
    for i in range(20):  # other results of the same size are made and dropped
        hvd.allgather(torch.full((1000,), -1.0), name="kept")
        hvd.alltoall(torch.full((1000 * size,), -1.0), name="kept")
    hvd.barrier()
    hvd.shutdown()
    gc.collect()
    expected = torch.arange(float(size)).repeat_interleave(1000)
    assert torch.equal(gathered, expected) and torch.equal(received, expected)
    hvd.init()
    assert torch.equal(gathered, expected) and torch.equal(received, expected)
    del gathered, received


def test_a_result_is_memory_of_its_own(hvd, size):
    first = hvd.allgather(torch.ones(5), name="own")
    second = hvd.allgather(torch.ones(5), name="own")
    first.mul_(7)
    assert torch.equal(second, torch.ones(5 * size)) and first.data_ptr() != second.data_ptr()
    first.requires_grad_()
    (first * 2).sum().backward()


def test_a_result_that_nobody_takes_is_given_back(hvd, size):
    for i in range(50):
        hvd.allgather_async(torch.ones(1000), name=f"dropped.{i}")
    hvd.barrier()
    with pytest.raises(hvd.HorovodInternalError):
        hvd.synchronize(hvd.allgather_async(torch.ones(3, 2 + hvd.rank()), name="fails"))
    assert hvd.allgather(torch.ones(1)).numel() == size


def test_a_result_cannot_be_taken_twice(hvd):
    taken = []

    def take_twice(handle, like):
        taken.append(torch.from_dlpack(_core.take_result(handle, 0, _core.FLOAT32)))
        _core.take_result(handle, 0, _core.FLOAT32)

    from horovod import _ops
    x = torch.ones(4)
    operation = _ops.transient("twice", _core.ALLGATHER, _core.FLOAT32, x.shape)
    handle = _ops.submit(operation, x.data_ptr(), 0, 4, None, x, take_twice)
    with pytest.raises((ValueError, hvd.HorovodInternalError)):
        hvd.synchronize(handle)
    assert torch.equal(taken[0], torch.ones(4 * hvd.size()))


def test_a_capsule_that_nobody_adopts_is_freed(hvd):
    from horovod import _ops
    x = torch.ones(4)
    operation = _ops.transient("unadopted", _core.ALLGATHER, _core.FLOAT32, x.shape)
    capsule = hvd.synchronize(_ops.submit(operation, x.data_ptr(), 0, 4, None, x,
                                          lambda handle, _: _core.take_result(handle, 0, _core.FLOAT32)))
    assert "dltensor" in repr(capsule)
    del capsule
    gc.collect()


def test_rows_that_go_to_nobody_have_a_gradient_of_zero(hvd, rank, size):
    x = torch.ones(size + 3, 2, requires_grad=True)
    output, received = hvd.alltoall(x, splits=[1] * size)
    assert not received.requires_grad
    (output * (rank + 1)).sum().backward()
    expected = [[receiver + 1.0] * 2 for receiver in range(size)] + [[0.0, 0.0]] * 3
    assert x.grad.tolist() == expected


def test_gradients_of_uneven_shares(hvd, rank, size):
    xs = [torch.randn(size + 1, 2, requires_grad=True), torch.randn(1, requires_grad=True)]
    results = hvd.grouped_reducescatter(xs, op=hvd.Average, prescale_factor=2.0, postscale_factor=3.0, name="shares")
    assert [len(result) for result in results] == [2 if rank == 0 else 1, 1 if rank == 0 else 0]
    sum((result * (rank + 1)).sum() for result in results).backward()
    assert xs[0].grad[:2].eq(6.0).all() and xs[0].grad[2:, 0].tolist() == [6.0 * other for other in range(2, size + 1)]
    assert xs[1].grad.tolist() == [6.0]


def test_what_waits_is_listed_by_its_handle(hvd, rank):
    from horovod.torch.mpi_ops import _handle_map
    if rank == 0:
        tensor = torch.ones(2)
        handle = hvd.allreduce_async_(tensor, name="listed")
        assert handle in _handle_map and _handle_map[handle] is tensor and len(_handle_map) >= 1
    hvd.barrier()
    if rank != 0:
        handle = hvd.allreduce_async_(torch.ones(2), name="listed")
    hvd.synchronize(handle)
    assert handle not in _handle_map
