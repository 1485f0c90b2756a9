"""Compares Adasum with its recursive definition."""
import numpy
import pytest
import torch

import horovod.torch as hvd
from ranks import SIZE, equal, error_of, everyone, is_error, mine, of, power_of_two, total

DTYPES = [torch.float16, torch.float32, torch.float64]


def pair(a, b):
    """The sum of a pair by §6.11 of the contract, in double."""
    least = numpy.sqrt(numpy.finfo(numpy.float64).tiny)
    dot, norm_a, norm_b = float(a @ b), float(a @ a), float(b @ b)
    of_a = 1 if norm_a < least else 1 - dot / (2 * norm_a)
    of_b = 1 if norm_b < least else 1 - dot / (2 * norm_b)
    return of_a * a + of_b * b


def adasum(vectors):
    """Combines neighbouring ranks, then neighbouring pairs of ranks, and so on."""
    vectors = [numpy.asarray(vector, dtype=numpy.float64) for vector in vectors]
    while len(vectors) > 1:
        vectors = [pair(vectors[i], vectors[i + 1]) for i in range(0, len(vectors), 2)]
    return vectors[0]


def check(found, inputs):
    """Checks Horovod's own criterion, and a stricter one that every right result meets."""
    expected = adasum([tensor.flatten().double().cpu().numpy() for tensor in inputs])
    difference = numpy.linalg.norm(found.flatten().double().cpu().numpy() - expected)
    scale = numpy.linalg.norm(expected) or 1.0
    assert difference / scale / 100 < torch.finfo(found.dtype).eps
    assert found.shape == inputs[0].shape and found.dtype == inputs[0].dtype


def random_of(rank, shape, dtype, scale=1.0):
    generator = torch.Generator().manual_seed(rank + 50)
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype)


@power_of_two
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (7,), (17, 3), (1000,), (4, 5, 6), (65537,)])
def test_adasum_is_the_recursive_sum_of_pairs(dtype, shape):
    """Contract §6.11 Adasum"""
    found = hvd.allreduce(random_of(hvd.rank(), shape, dtype), op=hvd.Adasum)
    check(found, [random_of(rank, shape, dtype) for rank in everyone()])


@power_of_two
@pytest.mark.parametrize("dtype", DTYPES)
def test_orthogonal_vectors_are_added(dtype):
    """Contract §6.11 Adasum [Horovod tests this]"""
    tensor = torch.zeros(4 * SIZE, dtype=dtype)
    tensor[hvd.rank() * 4:hvd.rank() * 4 + 4] = hvd.rank() + 1
    found = hvd.allreduce(tensor, op=hvd.Adasum)
    expected = torch.arange(1, SIZE + 1).repeat_interleave(4).to(dtype)
    torch.testing.assert_close(found, expected, rtol=2e-3 if dtype == torch.float16 else 1e-5, atol=0)


@power_of_two
@pytest.mark.parametrize("dtype", DTYPES)
def test_parallel_vectors_are_averaged(dtype):
    """Contract §6.11 Adasum [Horovod tests this]"""
    common = of(0, (64,), dtype)
    found = hvd.allreduce(common * 2 ** (hvd.rank() % 2), op=hvd.Adasum)
    same = hvd.allreduce(common, op=hvd.Adasum)
    expected = common * (1.5 if SIZE > 1 else 1)
    rtol = 4e-3 if dtype == torch.float16 else 1e-5
    torch.testing.assert_close(found, expected, rtol=rtol, atol=0)
    torch.testing.assert_close(same, common, rtol=rtol, atol=0)


@power_of_two
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("magnitude", ["very small", "widely spread"])
def test_parallel_vectors_of_odd_magnitudes_are_averaged(dtype, magnitude):
    """Contract §6.11 stability [Horovod tests this]"""
    finest = torch.finfo(dtype)
    if magnitude == "very small":
        # The square is still above sqrt(DBL_MIN). Below that limit vectors would be added.
        common = torch.full((128,), max(float(finest.tiny) * 64, 1e-74), dtype=torch.float64)
    else:
        exponents = torch.linspace(float(numpy.log2(finest.tiny)) / 2 + 1, float(numpy.log2(finest.max)) / 2 - 2, 128)
        common = torch.pow(2.0, exponents.double())
    common = common.to(dtype)
    found = hvd.allreduce(common, op=hvd.Adasum)
    error = torch.linalg.norm(found.double() - common.double()) / torch.linalg.norm(common.double()) / 100
    assert error < finest.eps


@power_of_two
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("who", ["the first", "all but the last", "all"])
def test_a_vector_of_zeros_is_added_as_it_is(dtype, who):
    """Contract §6.11: a coefficient of 1 for a norm of 0"""
    zero = {"the first": lambda rank: rank == 0, "all but the last": lambda rank: rank != SIZE - 1,
            "all": lambda rank: True}[who]
    inputs = [random_of(rank, (33,), dtype) * (not zero(rank)) for rank in everyone()]
    found = hvd.allreduce(inputs[hvd.rank()], op=hvd.Adasum)
    assert torch.isfinite(found).all()
    check(found, inputs)


@power_of_two
def test_adasum_in_place_gives_back_the_same_tensor():
    """Contract §2.2 allreduce_, §6.11"""
    tensor = random_of(hvd.rank(), (50,), torch.float32)
    assert hvd.allreduce_(tensor, op=hvd.Adasum) is tensor
    check(tensor, [random_of(rank, (50,), torch.float32) for rank in everyone()])


@power_of_two
def test_adasum_leaves_its_input_alone():
    """Contract §2.6 out of place [Horovod tests this]"""
    tensor = random_of(hvd.rank(), (50,), torch.float32)
    hvd.allreduce(tensor, op=hvd.Adasum)
    equal(tensor, random_of(hvd.rank(), (50,), torch.float32))


@power_of_two
def test_every_tensor_of_a_fused_batch_is_combined_on_its_own():
    """Contract §6.11, §6.4: coefficients are per tensor"""
    scales = [10.0 ** (i % 5 - 2) for i in range(20)]
    handles = [hvd.allreduce_async(random_of(hvd.rank() + 10 * i, (i + 1,), torch.float32, scale), op=hvd.Adasum,
                                   name=f"fused.{i}") for i, scale in enumerate(scales)]
    found = [hvd.synchronize(handle) for handle in handles]
    for i, (tensor, scale) in enumerate(zip(found, scales)):
        check(tensor, [random_of(rank + 10 * i, (i + 1,), torch.float32, scale) for rank in everyone()])


@power_of_two
def test_every_tensor_of_a_group_is_combined_on_its_own():
    """Contract §6.11 Adasum, §6.5 grouped ops"""
    shapes = [(3,), (100,), (4, 4)]
    found = hvd.grouped_allreduce([random_of(hvd.rank() + i, shape, torch.float32) for i, shape in enumerate(shapes)],
                                  op=hvd.Adasum)
    for i, (tensor, shape) in enumerate(zip(found, shapes)):
        check(tensor, [random_of(rank + i, shape, torch.float32) for rank in everyone()])


@power_of_two
def test_adasum_is_the_same_on_all_ranks_to_the_bit():
    """Contract §6.11 Adasum"""
    found = hvd.allreduce(random_of(hvd.rank(), (777,), torch.float32), op=hvd.Adasum)
    rows = hvd.allgather(found.unsqueeze(0))
    for row in rows:
        equal(row, rows[0])


@power_of_two
def test_adasum_is_cached():
    """Contract §6.3 response cache"""
    for turn in range(5):
        found = hvd.allreduce(random_of(hvd.rank() + turn, (20,), torch.float32), op=hvd.Adasum, name="again")
        check(found, [random_of(rank + turn, (20,), torch.float32) for rank in everyone()])


@power_of_two
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_adasum_takes_fewer_elements_than_ranks(count):
    """Contract §6.11 Adasum, §2.5 dtypes and layouts"""
    found = hvd.allreduce(random_of(hvd.rank(), (count,), torch.float64), op=hvd.Adasum)
    check(found, [random_of(rank, (count,), torch.float64) for rank in everyone()])


@power_of_two
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_adasum_is_for_floats_only(dtype):
    """Contract §6.11: float16/32/64 only"""
    error = error_of(hvd.allreduce, torch.ones(4, dtype=dtype), op=hvd.Adasum)
    equal(hvd.allreduce(mine(), op=hvd.Sum), total())
    if SIZE > 1:
        assert error is not None


@pytest.mark.skipif(SIZE != 3, reason="three ranks")
def test_adasum_of_three_ranks_is_not_implemented():
    """Contract §2.6 Adasum, issue 20"""
    errors = [error_of(hvd.allreduce, torch.ones(4), op=hvd.Adasum),
              error_of(hvd.allreduce_async, torch.ones(4), op=hvd.Adasum),
              error_of(hvd.allreduce_, torch.ones(4), op=hvd.Adasum)]
    equal(hvd.allreduce(mine(), op=hvd.Sum), total())
    for error in errors:
        is_error(error, NotImplementedError)


@pytest.mark.skipif(SIZE not in (2, 4), reason="two or four ranks")
@pytest.mark.parametrize("joined", [0, SIZE - 1])
def test_a_joined_rank_adds_zeros_to_adasum(joined):
    """Contract §6.6 join"""
    inputs = [random_of(rank, (21,), torch.float32) * (rank != joined) for rank in everyone()]
    found = None
    if hvd.rank() != joined:
        try:
            found = hvd.allreduce(inputs[hvd.rank()], op=hvd.Adasum, name="joined")
        except Exception as error:
            found = error
    hvd.join()
    if hvd.rank() != joined:
        if isinstance(found, Exception):
            raise found
        check(found, inputs)


@power_of_two
def test_the_gradient_of_adasum_is_the_adasum_of_gradients():
    """Contract §2.7 allreduce"""
    tensor = torch.ones(12, requires_grad=True)
    hvd.allreduce(tensor, op=hvd.Adasum).backward(random_of(hvd.rank(), (12,), torch.float32))
    check(tensor.grad, [random_of(rank, (12,), torch.float32) for rank in everyone()])
