"""Tests of broadcast."""
import pytest
import torch

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64,
          torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("shape", [(), (1,), (11,), (3, 4), (2, 3, 4), (0, 2)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_from_every_root(hvd, rank, size, dtype, shape):
    for root in range(size):
        tensor = torch.full(shape, (rank + 1) % 2, dtype=dtype)
        before = tensor.clone()
        result = hvd.broadcast(tensor, root, name=f"broadcast.{root}")
        assert torch.equal(result, torch.full(shape, (root + 1) % 2, dtype=dtype))
        assert torch.equal(tensor, before), "the input was changed"
        assert hvd.broadcast_(tensor, root_rank=root) is tensor
        assert torch.equal(tensor, result)


def test_large(hvd, rank):
    root = hvd.size() - 1
    tensor = torch.arange(2_000_003.0) if rank == root else torch.zeros(2_000_003)
    assert torch.equal(hvd.broadcast(tensor, root), torch.arange(2_000_003.0))


def test_many_at_once_from_different_roots(hvd, rank, size):
    handles = [hvd.broadcast_async_(torch.full((i,), float(rank)), i % size, name=f"b.{i}") for i in range(60)]
    for i, handle in enumerate(handles):
        assert torch.equal(hvd.synchronize(handle), torch.full((i,), float(i % size)))


@pytest.mark.parametrize("root", [-1, 1000])
def test_root_out_of_range(hvd, root):
    with pytest.raises(ValueError, match="root"):
        hvd.broadcast(torch.ones(1), root)
