"""Tests of allreduce in all its forms."""
import numpy
import pytest
import torch

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
NUMBERS = INTEGERS + FLOATS
# The tests use small integers, whose sums are exact also in float16 and bfloat16.
SHAPES = [(), (17,), (5, 3), (2, 3, 4), (0,), (3, 0)]


def of_rank(rank, dtype, shape, low=0, high=9):
    """The tensor that a rank contributes. Every rank can compute the tensors of all ranks."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(low, high + 1, shape, generator=generator).to(dtype)


def of_all(size, dtype, shape, **limits):
    return torch.stack([of_rank(rank, torch.float64, shape, **limits) for rank in range(size)])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_sum(hvd, rank, size, dtype, shape):
    given = of_rank(rank, dtype, shape)
    expected = of_all(size, dtype, shape).sum(0).to(dtype)
    result = hvd.allreduce(given, op=hvd.Sum, name=f"sum.{dtype}.{shape}")
    assert result.dtype == dtype and result.shape == torch.Size(shape)
    assert torch.equal(result, expected)
    assert torch.equal(given, of_rank(rank, dtype, shape)), "the input was changed"


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_in_place(hvd, rank, size, dtype):
    tensor = of_rank(rank, dtype, (9, 4))
    address = tensor.data_ptr()
    result = hvd.allreduce_(tensor, op=hvd.Sum)
    assert result is tensor and tensor.data_ptr() == address
    assert torch.equal(tensor, of_all(size, dtype, (9, 4)).sum(0).to(dtype))


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_min_max_product(hvd, rank, size, dtype):
    given = of_rank(rank, dtype, (40,), low=1, high=3)
    everybody = of_all(size, dtype, (40,), low=1, high=3)
    assert torch.equal(hvd.allreduce(given, op=hvd.Min), everybody.amin(0).to(dtype))
    assert torch.equal(hvd.allreduce(given, op=hvd.Max), everybody.amax(0).to(dtype))
    assert torch.equal(hvd.allreduce(given, op=hvd.Product), everybody.prod(0).to(dtype))


def test_bool(hvd, rank, size):
    given = of_rank(rank, torch.bool, (50,), high=1)
    everybody = of_all(size, torch.bool, (50,), high=1)
    assert torch.equal(hvd.allreduce(given, op=hvd.Max), everybody.amax(0).bool())
    assert torch.equal(hvd.allreduce(given, op=hvd.Min), everybody.amin(0).bool())
    assert torch.equal(hvd.allreduce(given, op=hvd.Sum), everybody.sum(0).bool())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_average_of_equal_tensors_is_the_tensor(hvd, dtype):
    tensor = torch.randn(1000).to(dtype)
    tolerance = dict(rtol=0, atol=0) if hvd.size() in (1, 2, 4) else {}
    torch.testing.assert_close(hvd.allreduce(tensor), tensor, **tolerance)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64], ids=str)
def test_average_of_integers_truncates(hvd, rank, size, dtype):
    low = 0 if dtype == torch.uint8 else -20
    given = of_rank(rank, dtype, (100,), low=low, high=20)
    expected = (of_all(size, dtype, (100,), low=low, high=20).sum(0) / size).trunc().to(dtype)
    assert torch.equal(hvd.allreduce(given, op=hvd.Average), expected)


def scaled(tensor, factor):
    """The product as Horovod defines it: integers are scaled in double and truncated; float16, bfloat16 and float32 are
    scaled in float32."""
    if tensor.dtype == torch.float64:
        return tensor * factor
    if tensor.dtype.is_floating_point:
        return (tensor.float() * torch.tensor(factor, dtype=torch.float32)).to(tensor.dtype)
    return (tensor.double() * factor).trunc().to(tensor.dtype)


SCALABLE = [torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", SCALABLE, ids=str)
def test_prescale(hvd, rank, size, dtype):
    factor = numpy.random.RandomState(7).uniform()
    given = of_rank(rank, dtype, (200,), high=20)
    every = [scaled(of_rank(other, dtype, (200,), high=20), factor) for other in range(size)]
    result = hvd.allreduce(given, op=hvd.Sum, prescale_factor=factor)
    if dtype.is_floating_point:
        expected = torch.stack([each.double() for each in every]).sum(0)
        tolerance = {torch.float16: 4e-3, torch.float32: 1e-6, torch.float64: 1e-12}[dtype]
        torch.testing.assert_close(result.double(), expected, rtol=tolerance, atol=tolerance)
    else:
        assert torch.equal(result, torch.stack(every).sum(0).to(dtype))
    assert torch.equal(given, of_rank(rank, dtype, (200,), high=20)), "the input was changed"


@pytest.mark.parametrize("dtype", SCALABLE, ids=str)
def test_postscale(hvd, rank, size, dtype):
    factor = numpy.random.RandomState(8).uniform()
    given = of_rank(rank, dtype, (200,), high=20)
    total = of_all(size, dtype, (200,), high=20).sum(0).to(dtype)
    result = hvd.allreduce(given, op=hvd.Sum, postscale_factor=factor)
    assert torch.equal(result, scaled(total, factor))


def test_both_scales_in_one(hvd, rank, size):
    given = of_rank(rank, torch.float32, (64,))
    result = hvd.allreduce(given, op=hvd.Average, prescale_factor=0.5, postscale_factor=4.0)
    torch.testing.assert_close(result, of_all(size, torch.float32, (64,)).mean(0).float() * 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves_are_summed_in_float(hvd, size, dtype):
    """In float16, 2048 + 1 + 1 … would stay 2048. Therefore partial sums must have a wider type."""
    big = {torch.float16: 2048.0, torch.bfloat16: 256.0}[dtype]
    tensor = torch.full((100,), big if hvd.rank() == 0 else 1.0, dtype=dtype)
    result = hvd.allreduce(tensor, op=hvd.Sum)
    expected = torch.tensor(big + (size - 1)).to(dtype)
    assert torch.equal(result, expected.expand(100))


def test_many_small_tensors_of_all_kinds_at_once(hvd, rank, size):
    given, started = [], []
    for i in range(200):
        dtype, shape = NUMBERS[i % len(NUMBERS)], (i % 13, 3) if i % 3 else (i,)
        given.append((dtype, shape))
        started.append(hvd.allreduce_async(of_rank(rank, dtype, shape), op=hvd.Sum, name=f"small.{i}"))
    for (dtype, shape), handle in zip(given, started):
        assert torch.equal(hvd.synchronize(handle), of_all(size, dtype, shape).sum(0).to(dtype))


def test_large_tensor(hvd, rank, size):
    tensor = torch.arange(3_000_001, dtype=torch.float32) % 1000 + rank
    expected = (torch.arange(3_000_001, dtype=torch.float32) % 1000) * size + size * (size - 1) / 2
    assert torch.equal(hvd.allreduce(tensor, op=hvd.Sum), expected)


def test_poll_is_false_until_the_others_have_come(hvd, rank):
    tensor = torch.ones(5)
    if rank == 0:
        handle = hvd.allreduce_async(tensor, op=hvd.Sum, name="late")
        assert hvd.poll(handle) is False
    hvd.barrier()  # the other ranks submit only after rank 0 has polled
    if rank != 0:
        handle = hvd.allreduce_async(tensor, op=hvd.Sum, name="late")
    assert torch.equal(hvd.synchronize(handle), torch.full((5,), float(hvd.size())))
    assert hvd.poll(handle) is True and hvd.synchronize(handle) is None


def test_handles_are_positive_integers_that_a_restart_does_not_repeat(hvd):
    before = [hvd.allreduce_async(torch.ones(1)) for _ in range(3)]
    hvd.barrier()
    hvd.shutdown()
    hvd.init()
    after = [hvd.allreduce_async(torch.ones(1)) for _ in range(3)]
    assert all(type(handle) is int and handle > 0 for handle in before + after) and len({*before, *after}) == 6
    for handle in after:
        hvd.synchronize(handle)


def test_a_name_may_come_again_with_another_shape_and_dtype(hvd, size):
    for dtype in (torch.float32, torch.int64, torch.float32):
        for shape in ((4,), (2, 2), (4,)):
            result = hvd.allreduce(torch.ones(shape, dtype=dtype), op=hvd.Sum, name="again")
            assert torch.equal(result, torch.full(shape, size, dtype=dtype))


def test_new_memory_for_a_prepared_operation(hvd, size):
    for step in range(20):
        tensor = torch.full((100,), float(step))  # new, like gradients that were None
        assert torch.equal(hvd.allreduce_(tensor, op=hvd.Sum, name="moves"), torch.full((100,), float(step * size)))


def test_results_outlive_their_inputs(hvd, size):
    handles = [hvd.allreduce_async_(torch.full((1000,), float(i)), op=hvd.Sum, name=f"dropped.{i}") for i in range(20)]
    for i, handle in enumerate(handles):
        assert torch.equal(hvd.synchronize(handle), torch.full((1000,), float(i * size)))


def test_average_argument(hvd, size):
    with pytest.warns(DeprecationWarning):
        assert torch.equal(hvd.allreduce(torch.ones(2), average=False), torch.full((2,), float(size)))
    with pytest.warns(DeprecationWarning):
        assert torch.equal(hvd.allreduce(torch.ones(2), True), torch.ones(2))
    with pytest.raises(ValueError):
        hvd.allreduce(torch.ones(2), average=True, op=hvd.Sum)


def test_grouped(hvd, rank, size):
    dtypes = [torch.float32, torch.float64, torch.int32, torch.float32]
    given = [of_rank(rank, dtype, (i + 1, 2)) for i, dtype in enumerate(dtypes)]
    expected = [of_all(size, dtype, (i + 1, 2)).sum(0).to(dtype) for i, dtype in enumerate(dtypes)]
    results = hvd.grouped_allreduce(given, op=hvd.Sum, name="group")
    assert isinstance(results, list)
    assert all(torch.equal(*pair) for pair in zip(results, expected))
    results = hvd.synchronize(hvd.grouped_allreduce_async(given, op=hvd.Sum))
    assert all(torch.equal(*pair) for pair in zip(results, expected))
    results = hvd.grouped_allreduce_(given, op=hvd.Sum, name="group")
    assert isinstance(results, tuple) and all(result is tensor for result, tensor in zip(results, given))
    assert all(torch.equal(*pair) for pair in zip(results, expected))


def test_large_group(hvd, size):
    results = hvd.grouped_allreduce([torch.full((i % 7 + 1,), float(i)) for i in range(100)], op=hvd.Sum)
    assert all(torch.equal(result, torch.full((i % 7 + 1,), float(i * size))) for i, result in enumerate(results))


def test_compression(hvd, size):
    tensor = torch.arange(100.0)
    result = hvd.allreduce(tensor, op=hvd.Sum, compression=hvd.Compression.fp16)
    assert result.dtype == torch.float32 and torch.equal(result, tensor * size)


def test_sparse(hvd, rank, size):
    dense = torch.zeros(10, 3)
    dense[rank] = 1.0
    dense[9] = rank + 1.0
    for op in (hvd.Sum, hvd.Average):
        result = hvd.sparse_allreduce_async(dense.to_sparse(1), name="sparse", op=op)()
        assert result.is_sparse
        torch.testing.assert_close(result.to_dense(), hvd.allreduce(dense, op=op), rtol=1e-6, atol=1e-6)


def test_process_set(hvd, size):
    result = hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=hvd.global_process_set)
    assert result.item() == size
    with pytest.raises(TypeError):
        hvd.allreduce(torch.ones(1), process_set=hvd.ProcessSet([0]))
