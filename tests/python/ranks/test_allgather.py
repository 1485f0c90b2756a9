"""Tests of allgather, also for tensors whose first dimension differs between ranks."""
import pytest
import torch

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64,
          torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_equal_shapes(hvd, rank, size, dtype, dimensions):
    shape = (7,) * dimensions
    result = hvd.allgather(torch.full(shape, rank % 2, dtype=dtype))
    assert result.dtype == dtype and result.shape == (7 * size,) + shape[1:]
    for other, part in enumerate(result.split(7)):
        assert torch.equal(part, torch.full(shape, other % 2, dtype=dtype))


@pytest.mark.parametrize("rows", [lambda rank: rank, lambda rank: 3 * rank + 1, lambda rank: 5 if rank == 0 else 0],
                         ids=["rank", "more", "first only"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_differ(hvd, rank, size, dtype, rows):
    result = hvd.allgather(torch.full((rows(rank), 4), rank % 2, dtype=dtype), name="differ")
    expected = torch.cat([torch.full((rows(other), 4), other % 2, dtype=dtype) for other in range(size)])
    assert torch.equal(result, expected)


def test_rows_change_from_call_to_call(hvd, rank, size):
    for step in range(10):
        counts = [(other + step) % 4 for other in range(size)]
        result = hvd.allgather(torch.full((counts[rank], 2), float(rank)), name="changing")
        assert torch.equal(result, torch.cat([torch.full((count, 2), float(o)) for o, count in enumerate(counts)]))


def test_nothing_at_all(hvd):
    assert hvd.allgather(torch.empty(0, 3)).shape == (0, 3)
    assert hvd.allgather(torch.empty(2, 0)).shape == (2 * hvd.size(), 0)


def test_large(hvd, rank, size):
    result = hvd.allgather(torch.full((200_000 + rank, 3), float(rank)))
    assert torch.equal(result[:, 0].unique(return_counts=True)[1],
                       torch.tensor([200_000 + other for other in range(size)]))


def test_many_at_once(hvd, rank, size):
    handles = [hvd.allgather_async(torch.full((rank + i,), i, dtype=torch.int32), name=f"many.{i}") for i in range(50)]
    for i, handle in reversed(list(enumerate(handles))):
        assert torch.equal(hvd.synchronize(handle),
                           torch.full((sum(other + i for other in range(size)),), i, dtype=torch.int32))


def test_grouped(hvd, rank, size):
    dtypes = (torch.int64, torch.float32, torch.bool)
    given = [torch.full((rank + i, 2), i, dtype=dtype) for i, dtype in enumerate(dtypes)]
    for results in (hvd.grouped_allgather(given, name="g"), hvd.grouped_allgather(given),
                    hvd.synchronize(hvd.grouped_allgather_async(given, name="g"))):
        assert isinstance(results, tuple)
        for i, (result, tensor) in enumerate(zip(results, given)):
            assert torch.equal(result, torch.full((sum(other + i for other in range(size)), 2), i, dtype=tensor.dtype))


def test_scalars_cannot_be_gathered(hvd):
    with pytest.raises((ValueError, hvd.HorovodInternalError)):
        hvd.allgather(torch.tensor(1.0))
