"""The contract's table of errors: the exceptions, their causes and their ranks. The runtime goes on afterwards."""
import inspect

import pytest
import torch

import horovod.torch as hvd
from horovod.torch import mpi_ops
from ranks import SIZE, at_least, equal, error_of, is_error, mine, power_of_two, restarted, total

CALLS = {
    "allreduce": lambda **k: hvd.allreduce(torch.ones(12), **k),
    "allreduce_async": lambda **k: hvd.allreduce_async(torch.ones(12), **k),
    "allreduce_": lambda **k: hvd.allreduce_(torch.ones(12), **k),
    "grouped_allreduce": lambda **k: hvd.grouped_allreduce([torch.ones(12)], **k),
    "grouped_allreduce_": lambda **k: hvd.grouped_allreduce_([torch.ones(12)], **k),
    "allgather": lambda **k: hvd.allgather(torch.ones(12), **k),
    "grouped_allgather": lambda **k: hvd.grouped_allgather([torch.ones(12)], **k),
    "broadcast": lambda **k: hvd.broadcast(torch.ones(12), 0, **k),
    "broadcast_": lambda **k: hvd.broadcast_(torch.ones(12), 0, **k),
    "alltoall": lambda **k: hvd.alltoall(torch.ones(12), **k),
    "reducescatter": lambda **k: hvd.reducescatter(torch.ones(12), **k),
    "grouped_reducescatter": lambda **k: hvd.grouped_reducescatter([torch.ones(12)], **k),
    "barrier": lambda **k: hvd.barrier(),
    "join": lambda **k: hvd.join(),
}


def works():
    equal(hvd.allreduce(mine(), op=hvd.Sum, name="works"), total())


def test_the_internal_error_is_a_runtime_error():
    """Contract §1.5 exceptions"""
    assert issubclass(hvd.HorovodInternalError, RuntimeError)


@pytest.mark.parametrize("call", CALLS)
def test_before_init_an_op_is_an_internal_error(call):
    """Contract §2.10 Horovod not initialised"""
    hvd.barrier()
    hvd.shutdown()
    error = error_of(CALLS[call])
    hvd.init()
    works()
    # A blocking op may ask for the size first, which raises a ValueError. No op may hang or succeed.
    is_error(error, hvd.HorovodInternalError, ValueError)


@pytest.mark.parametrize("call", ["allreduce_async", "allgather", "broadcast", "alltoall", "reducescatter"])
def test_before_init_an_enqueued_op_is_an_internal_error(call):
    """Contract §2.10 Horovod not initialised"""
    hvd.barrier()
    hvd.shutdown()
    error = error_of(CALLS[call])
    hvd.init()
    is_error(error, hvd.HorovodInternalError)


DISAGREE = {
    "dtype": lambda odd: dict(tensor=torch.ones(6, dtype=torch.int32 if odd else torch.float32)),
    "float widths": lambda odd: dict(tensor=torch.ones(6, dtype=torch.float64 if odd else torch.float32)),
    "number of elements": lambda odd: dict(tensor=torch.ones(6 + odd)),
    "dimensions": lambda odd: dict(tensor=torch.ones((2, 3) if odd else (6,))),
    "order of dimensions": lambda odd: dict(tensor=torch.ones((2, 3) if odd else (3, 2))),
    "prescale": lambda odd: dict(tensor=torch.ones(6), prescale_factor=1.0 + odd),
    "postscale": lambda odd: dict(tensor=torch.ones(6), postscale_factor=1.0 + odd),
    "reduction": lambda odd: dict(tensor=torch.ones(6), op=hvd.Min if odd else hvd.Sum),
    "average": lambda odd: dict(tensor=torch.ones(6), op=hvd.Average if odd else hvd.Sum),
}


@pytest.mark.parametrize("what", DISAGREE)
@pytest.mark.parametrize("who", ["first", "last"])
@at_least(2)
def test_ranks_that_disagree_about_an_allreduce_all_get_an_error(what, who):
    """Contract §2.10 errors, §6.2 negotiation [Horovod tests this]"""
    odd = hvd.rank() == (0 if who == "first" else SIZE - 1)
    arguments = {"op": hvd.Sum, **DISAGREE[what](odd)}
    error = error_of(hvd.allreduce, name="wrong", **arguments)
    works()
    again = hvd.allreduce(mine(), op=hvd.Sum, name="wrong")
    is_error(error, hvd.HorovodInternalError)
    assert str(error), "says what is wrong"
    equal(again, total())


@pytest.mark.parametrize("what", DISAGREE)
@at_least(2)
def test_ranks_that_disagree_in_place_leave_the_runtime_usable(what):
    """Contract §2.10 errors"""
    arguments = {"op": hvd.Sum, **DISAGREE[what](hvd.rank() == 0)}
    error = error_of(hvd.allreduce_, name="wrong", **arguments)
    works()
    is_error(error, hvd.HorovodInternalError)


@at_least(2)
@power_of_two
def test_ranks_that_disagree_about_the_kind_of_op_all_get_an_error():
    """Contract §6.2 op kind"""
    error = error_of(hvd.allreduce, torch.ones(6), op=hvd.Adasum if hvd.rank() == 0 else hvd.Sum, name="kind")
    works()
    is_error(error, hvd.HorovodInternalError)


@at_least(2)
@pytest.mark.parametrize("what", ["dtype", "number of elements", "reduction"])
def test_a_cached_op_that_ranks_come_to_disagree_about_is_an_error(what):
    """Contract §2.10 errors, §6.3 response cache"""
    for _ in range(3):
        hvd.allreduce(torch.ones(6), op=hvd.Sum, name="cached")
    arguments = {"op": hvd.Sum, **DISAGREE[what](hvd.rank() == 0)}
    error = error_of(hvd.allreduce, name="cached", **arguments)
    again = hvd.allreduce(mine(), op=hvd.Sum, name="cached")
    is_error(error, hvd.HorovodInternalError)
    equal(again, total())


@at_least(2)
def test_an_error_is_for_its_op_alone():
    """Contract §6.2: an error response is for that name only"""
    before = hvd.allreduce_async(mine(), op=hvd.Sum, name="before")
    wrong = hvd.allreduce_async(torch.ones(3 + hvd.rank()), op=hvd.Sum, name="wrong")
    after = hvd.allreduce_async(mine(), op=hvd.Sum, name="after")
    error = error_of(hvd.synchronize, wrong)
    found = [hvd.synchronize(before), hvd.synchronize(after)]
    is_error(error, hvd.HorovodInternalError)
    for tensor in found:
        equal(tensor, total())


@at_least(2)
def test_the_handle_of_a_failed_op_is_done_and_gone():
    """Contract §2.3 handles"""
    handle = hvd.allreduce_async(torch.ones(3 + hvd.rank()), op=hvd.Sum, name="wrong")
    error = error_of(hvd.synchronize, handle)
    second = hvd.synchronize(handle)
    is_error(error, hvd.HorovodInternalError)
    assert second is None


@at_least(2)
def test_many_errors_in_a_row_leave_the_runtime_usable():
    """Contract §2.10: after an error the runtime stays usable"""
    errors = [error_of(hvd.allreduce, torch.ones(3 + hvd.rank()), name=f"wrong.{i % 3}") for i in range(30)]
    works()
    for error in errors:
        is_error(error, hvd.HorovodInternalError)


@at_least(2)
def test_errors_do_not_depend_on_the_cache():
    """Contract §2.10 errors, §6.3 response cache"""
    with restarted(HOROVOD_CACHE_CAPACITY=0):
        error = error_of(hvd.allreduce, torch.ones(3 + hvd.rank()), name="wrong")
        works()
    is_error(error, hvd.HorovodInternalError)


@pytest.mark.parametrize("op", [17, -1, "Sum"])
def test_a_reduction_that_does_not_exist_is_an_error(op):
    """Contract §2.10, issue 20: bad input"""
    error = error_of(hvd.allreduce, torch.ones(3), op=op)
    works()
    assert error is not None


@pytest.mark.parametrize("thing", [None, 3.0, [1.0, 2.0], "text"])
@pytest.mark.parametrize("call", ["allreduce", "allgather", "broadcast"])
def test_what_is_no_tensor_is_an_error(call, thing):
    """Contract §2.10, issue 20: bad input"""
    error = error_of(getattr(hvd, call), thing, **({"root_rank": 0} if call == "broadcast" else {}))
    works()
    assert error is not None


@pytest.mark.skipif(SIZE != 3, reason="three ranks")
def test_adasum_on_other_than_a_power_of_two_is_not_implemented():
    """Contract §2.6 Adasum"""
    error = error_of(hvd.allreduce, torch.ones(4), op=hvd.Adasum)
    group = error_of(hvd.grouped_allreduce, [torch.ones(4)], op=hvd.Adasum)
    works()
    is_error(error, NotImplementedError)
    is_error(group, NotImplementedError)


def test_wrong_arguments_are_a_type_error():
    """Contract §2.2 signatures"""
    errors = [error_of(hvd.allreduce), error_of(hvd.allreduce, torch.ones(2), nonsense=1),
              error_of(hvd.broadcast, mine()), error_of(hvd.barrier, process_set=None, nonsense=1)]
    works()
    for error in errors:
        is_error(error, TypeError)


def test_the_helper_for_average_is_where_it_was():
    """Contract §2.1 exported names, §1.6 util"""
    resolve = mpi_ops.handle_average_backwards_compatibility
    assert list(inspect.signature(resolve).parameters) == ["op", "average"]
    assert resolve(None, None) == hvd.Average and resolve(hvd.Sum, None) == hvd.Sum
    with pytest.warns(DeprecationWarning):
        assert resolve(None, False) == hvd.Sum
    is_error(error_of(resolve, hvd.Sum, True), ValueError)
