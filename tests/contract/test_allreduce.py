"""Tests of allreduce: its results, and the tensors that it must not change."""
import pytest
import torch

import horovod.torch as hvd
from ranks import REDUCED, SHAPES, SIZE, at_least, equal, error_of, everyone, is_error, mine, near, of, total

OPS = ["Sum", "Average", "Min", "Max", "Product"]


def expected_of(op, shape, dtype):
    stack = torch.stack([of(rank, shape, torch.float64) for rank in everyone()])
    value = {"Sum": stack.sum(0), "Average": stack.mean(0), "Min": stack.amin(0), "Max": stack.amax(0),
             "Product": stack.prod(0)}[op]
    return (value if dtype.is_floating_point else value.trunc()).to(dtype)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", REDUCED)
@pytest.mark.parametrize("shape", SHAPES)
def test_allreduce_reduces_elementwise(op, dtype, shape):
    """Contract §2.6 reductions, §2.5 dtypes and layouts"""
    near(hvd.allreduce(mine(shape, dtype), op=getattr(hvd, op)), expected_of(op, shape, dtype))


@pytest.mark.parametrize("op", OPS)
def test_allreduce_in_place_gives_back_the_same_tensor(op):
    """Contract §2.2 allreduce_, §2.6"""
    tensor = mine()
    found = hvd.allreduce_(tensor, op=getattr(hvd, op))
    other = mine()
    handle = hvd.allreduce_async_(other, op=getattr(hvd, op))
    waited = hvd.synchronize(handle)
    assert found is tensor and waited is other
    near(tensor, expected_of(op, (17,), torch.float32))
    near(other, tensor)


def test_allreduce_leaves_its_input_alone():
    """Contract §2.6 out of place [Horovod tests this]"""
    tensor = mine((100,))
    found = [hvd.allreduce(tensor, op=hvd.Sum, prescale_factor=3.0),
             hvd.synchronize(hvd.allreduce_async(tensor, op=hvd.Sum))]
    equal(tensor, mine((100,)))
    assert all(other is not tensor and other.data_ptr() != tensor.data_ptr() for other in found)


def test_without_an_op_allreduce_averages():
    """Contract §2.2 op, average"""
    near(hvd.allreduce(mine()), expected_of("Average", (17,), torch.float32))
    near(hvd.synchronize(hvd.allreduce_async(mine())), expected_of("Average", (17,), torch.float32))


@pytest.mark.parametrize("average", [True, False])
def test_the_old_argument_average_works_and_warns(average):
    """Contract §2.2 signatures, §1.6 util"""
    with pytest.warns(DeprecationWarning):
        found = hvd.allreduce(mine(), average=average)
    near(found, expected_of("Average" if average else "Sum", (17,), torch.float32))


@pytest.mark.parametrize("verb", ["allreduce", "allreduce_async", "allreduce_", "allreduce_async_"])
def test_op_and_average_together_are_a_value_error(verb):
    """Contract §2.2 signatures"""
    is_error(error_of(getattr(hvd, verb), mine(), average=True, op=hvd.Sum), ValueError)


def test_two_ranks_give_exactly_twice_a_common_tensor():
    """Contract §2.6 reductions"""
    common = torch.randn(1000)
    summed, averaged = hvd.allreduce(common, op=hvd.Sum), hvd.allreduce(common, op=hvd.Average)
    if SIZE in (1, 2, 4):
        equal(summed, common * SIZE)
        equal(averaged, common)
    else:
        torch.testing.assert_close(summed, common * SIZE, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(averaged, common, rtol=1e-6, atol=1e-7)


def test_all_ranks_get_the_same_bits():
    """Contract §2.6 reductions"""
    torch.manual_seed(hvd.rank())
    found = hvd.allreduce(torch.randn(1000), op=hvd.Sum)
    rows = hvd.allgather(found.unsqueeze(0))
    for row in rows:
        equal(row, rows[0])


@pytest.mark.parametrize("count", [0, 1, 7, 4096, 300001])
def test_allreduce_takes_any_number_of_elements(count):
    """Contract §2.5 dtypes and layouts"""
    near(hvd.allreduce(mine((count,)), op=hvd.Sum), total((count,)))


def test_allreduce_takes_a_tensor_of_no_dimensions():
    """Contract §2.5 dtypes and layouts"""
    found = hvd.allreduce(torch.tensor(float(hvd.rank() + 1)), op=hvd.Sum)
    in_place = hvd.allreduce_(torch.tensor(hvd.rank() + 1), op=hvd.Sum)
    equal(found, torch.tensor(float(sum(range(SIZE + 1)))))
    equal(in_place, torch.tensor(sum(range(SIZE + 1))))


def test_allreduce_takes_arguments_by_position():
    """Contract §2.2 signatures"""
    found = [hvd.allreduce(mine(), None, "position", hvd.Compression.none, hvd.Sum, 2.0, 0.5, hvd.global_process_set),
             hvd.allreduce_(mine(), None, "position", hvd.Sum, 2.0, 0.5, hvd.global_process_set),
             hvd.synchronize(hvd.allreduce_async(mine(), None, "position", hvd.Sum, 2.0, 0.5, hvd.global_process_set)),
             hvd.synchronize(hvd.allreduce_async_(mine(), None, "position", hvd.Sum, 2.0, 0.5, hvd.global_process_set))]
    for tensor in found:
        equal(tensor, total())


def test_allreduce_takes_a_tensor_that_requires_grad():
    """Contract §2.6 reductions"""
    tensor = mine().requires_grad_()
    found = hvd.allreduce(tensor, op=hvd.Sum)
    handle = hvd.synchronize(hvd.allreduce_async(tensor, op=hvd.Sum))
    assert found.requires_grad
    equal(found.detach(), total())
    equal(handle.detach(), total())


def test_allreduce_in_place_takes_a_parameter():
    """Contract §2.6 reductions"""
    parameter = torch.nn.Parameter(mine())
    found = error_of(hvd.allreduce_, parameter.data, op=hvd.Sum)
    assert found is None
    equal(parameter.data, total())


@pytest.mark.parametrize("dtype", REDUCED)
def test_many_async_allreduces_with_mixed_shapes_are_right(dtype):
    """Contract §2.3 handles [Horovod tests this]"""
    shapes = [(17,), (17, 17), (5, 5, 5)] * 5
    handles = [hvd.allreduce_async(mine(shape, dtype), op=hvd.Sum, name=f"mixed.{i}") for i, shape in enumerate(shapes)]
    polled = [hvd.poll(handle) for handle in handles]
    found = [hvd.synchronize(handle) for handle in handles]
    assert all(isinstance(answer, bool) for answer in polled)
    for tensor, shape in zip(found, shapes):
        near(tensor, total(shape, dtype))


@at_least(2)
def test_ranks_may_submit_in_different_orders():
    """Contract §6.2: no rank deadlocks because of order"""
    order = list(range(12))
    order = order[hvd.rank():] + order[:hvd.rank()]
    handles = {i: hvd.allreduce_async(mine() * (i + 1), op=hvd.Sum, name=f"order.{i}") for i in order}
    found = {i: hvd.synchronize(handles[i]) for i in reversed(order)}
    for i, tensor in found.items():
        equal(tensor, total() * (i + 1))


@at_least(2)
def test_verbs_in_different_orders_do_not_block_each_other():
    """Contract §6.2 negotiation"""
    calls = [lambda: hvd.allreduce_async(mine(), op=hvd.Sum, name="v"), lambda: hvd.allgather_async(mine(), name="v"),
             lambda: hvd.broadcast_async(mine(), 1, name="v"), lambda: hvd.alltoall_async(mine((SIZE,)), name="v"),
             lambda: hvd.reducescatter_async(mine((SIZE,)), op=hvd.Sum, name="v")]
    order = list(range(len(calls)))
    order = order if hvd.rank() % 2 else order[::-1]
    handles = {i: calls[i]() for i in order}
    found = [hvd.synchronize(handles[i]) for i in range(len(calls))]
    equal(found[0], total())
    equal(found[1], torch.cat([of(rank) for rank in everyone()]))
    equal(found[2], of(1))
    equal(found[3][0], torch.cat([of(rank, (SIZE,))[hvd.rank():hvd.rank() + 1] for rank in everyone()]))
    equal(found[4], total((SIZE,))[hvd.rank():hvd.rank() + 1])


def test_non_contiguous_tensors_are_refused_or_right():
    """Contract §2.5: may be widened"""
    tensor = mine((4, 6)).t()
    assert not tensor.is_contiguous()
    found = []
    error = error_of(lambda: found.append(hvd.allreduce(tensor, op=hvd.Sum)))
    if error is None:
        equal(found[0], total((4, 6)).t())
    else:
        is_error(error, ValueError)


def test_allreduce_works_from_several_threads():
    """Contract §6.1: framework threads only enqueue"""
    import threading
    found, tensor = {}, mine()

    def reduce(number):
        for turn in range(10):
            found[number, turn] = hvd.allreduce(tensor * (number + 1), op=hvd.Sum, name=f"thread.{number}.{turn}")

    threads = [threading.Thread(target=reduce, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 40
    for (number, _), each in found.items():
        equal(each, total() * (number + 1))


def test_average_is_by_the_ranks_of_the_job():
    """Contract §2.6 Average"""
    near(hvd.allreduce(torch.full((3,), float(hvd.rank()))), torch.full((3,), (SIZE - 1) / 2))


# ---- sparse_allreduce_async

def sparse(rank, rows=10, width=4):
    """A rank's sparse tensor with up to three rows of a table. All ranks have row 0, and one index occurs twice."""
    indices = torch.tensor([[0, rank % rows, (rank + 3) % rows, (rank + 3) % rows]])
    return torch.sparse_coo_tensor(indices, of(rank, (4, width)), (rows, width))


@pytest.mark.parametrize("op", ["Sum", "Average"])
def test_sparse_allreduce_equals_the_dense_one(op):
    """Contract §2.8 sparse_allreduce_async [Horovod tests this]"""
    wait = hvd.sparse_allreduce_async(sparse(hvd.rank()), name="sparse", op=getattr(hvd, op))
    assert callable(wait)
    found = wait()
    expected = sum(sparse(rank).to_dense() for rank in everyone()) / (SIZE if op == "Average" else 1)
    assert found.is_sparse and found.shape == (10, 4)
    torch.testing.assert_close(found.to_dense(), expected, rtol=0, atol=1e-6)


def test_sparse_allreduce_takes_what_has_no_values():
    """Contract §2.5 zero elements, §2.8"""
    empty = torch.sparse_coo_tensor(torch.zeros((1, 0), dtype=torch.int64), torch.zeros((0, 4)), (10, 4))
    tensor = sparse(0) if hvd.rank() == 0 else empty
    found = hvd.sparse_allreduce_async(tensor, name="nothing", op=hvd.Sum)()
    nothing = hvd.sparse_allreduce_async(empty, name="nothing", op=hvd.Sum)()
    torch.testing.assert_close(found.to_dense(), sparse(0).to_dense(), rtol=0, atol=1e-6)
    equal(nothing.to_dense(), torch.zeros(10, 4))


def test_sparse_allreduce_takes_several_sparse_dimensions():
    """Contract §2.8 sparse_allreduce_async: indices of (nnz, ndim)"""
    tensor = torch.sparse_coo_tensor(torch.tensor([[hvd.rank(), 0], [1, 2]]), torch.tensor([1.0, 2.0]), (SIZE, 3))
    found = hvd.sparse_allreduce_async(tensor, name="matrix", op=hvd.Sum)()
    expected = torch.zeros(SIZE, 3)
    expected[:, 1] += 1
    expected[0, 2] += 2 * SIZE
    equal(found.to_dense(), expected)
