"""The errors that ranks get when they disagree. Horovod stays usable afterwards."""
import pytest
import torch


@pytest.fixture(autouse=True)
def usable_afterwards(hvd):
    yield
    result = hvd.allreduce(torch.arange(10.0), op=hvd.Sum, name="usable")
    assert torch.equal(result, torch.arange(10.0) * hvd.size())


def odd(rank):
    return rank % 2 == 1


MISMATCHES = {
    "shape": lambda hvd, rank: hvd.allreduce(torch.ones(17 + odd(rank), 3), name="mismatch"),
    "dimensions": lambda hvd, rank: hvd.allreduce(torch.ones((2, 6) if odd(rank) else (12,)), name="mismatch"),
    "dtype": lambda hvd, rank: hvd.allreduce(torch.ones(4, dtype=torch.int32 if odd(rank) else torch.float32),
                                             name="mismatch"),
    "op": lambda hvd, rank: hvd.allreduce(torch.ones(4), op=hvd.Max if odd(rank) else hvd.Sum, name="mismatch"),
    "prescale": lambda hvd, rank: hvd.allreduce(torch.ones(4), prescale_factor=1.0 + odd(rank), name="mismatch"),
    "postscale": lambda hvd, rank: hvd.allreduce(torch.ones(4), postscale_factor=1.0 + odd(rank), name="mismatch"),
    "broadcast root": lambda hvd, rank: hvd.broadcast(torch.ones(4), int(odd(rank)), name="mismatch"),
    "broadcast shape": lambda hvd, rank: hvd.broadcast(torch.ones(4 + odd(rank)), 0, name="mismatch"),
    "broadcast dtype": lambda hvd, rank: hvd.broadcast(
        torch.ones(4, dtype=torch.int64 if odd(rank) else torch.float32), 0, name="mismatch"),
    "allgather other dimensions": lambda hvd, rank: hvd.allgather(torch.ones(4, 2 + odd(rank)), name="mismatch"),
    "allgather number of dimensions": lambda hvd, rank: hvd.allgather(torch.ones((4, 2) if odd(rank) else (4,)),
                                                                      name="mismatch"),
    "allgather without dimensions": lambda hvd, rank: hvd.allgather(torch.ones(()), name="mismatch"),
    "allgather without dimensions on some ranks": lambda hvd, rank: hvd.allgather(torch.ones(() if odd(rank) else 1),
                                                                                  name="mismatch"),
    "allgather dtype": lambda hvd, rank: hvd.allgather(
        torch.ones(4, dtype=torch.float64 if odd(rank) else torch.float32), name="mismatch"),
}


@pytest.mark.parametrize("what", MISMATCHES)
def test_mismatch_fails_on_every_rank_and_the_name_can_be_used_again(hvd, rank, what):
    with pytest.raises(hvd.HorovodInternalError, match="mismatch") as raised:
        MISMATCHES[what](hvd, rank)
    assert raised.value.id == "HVD2101" and str(raised.value).endswith("[HVD2101]")
    result = hvd.allreduce(torch.ones(3), op=hvd.Sum, name="mismatch")
    assert torch.equal(result, torch.full((3,), float(hvd.size())))


def test_an_error_of_one_call_has_an_id_that_its_text_does_not_show(hvd):
    with pytest.raises(ValueError) as raised:
        hvd.broadcast(torch.ones(2), root_rank=hvd.size(), name="no such root")
    assert raised.value.id == "HVD2106" and "HVD" not in str(raised.value)


def test_mismatch_of_a_prepared_operation(hvd, rank):
    for _ in range(3):
        hvd.allreduce(torch.ones(8), name="prepared")
    with pytest.raises(hvd.HorovodInternalError, match="prepared"):
        hvd.allreduce(torch.ones(8 + odd(rank)), name="prepared")
    assert torch.equal(hvd.allreduce(torch.ones(8), name="prepared"), torch.ones(8))


def test_mismatch_harms_nobody_else_in_flight(hvd, rank):
    good = [hvd.allreduce_async(torch.full((10,), float(i)), name=f"good.{i}") for i in range(10)]
    bad = hvd.allreduce_async(torch.ones(2 + odd(rank)), name="bad")
    more = [hvd.allreduce_async(torch.full((10,), float(i)), name=f"more.{i}") for i in range(10)]
    with pytest.raises(hvd.HorovodInternalError):
        hvd.synchronize(bad)
    for handles in (good, more):
        for i, handle in enumerate(handles):
            assert torch.equal(hvd.synchronize(handle), torch.full((10,), float(i)))


def test_mismatch_in_a_group(hvd, rank):
    with pytest.raises(hvd.HorovodInternalError):
        hvd.grouped_allreduce([torch.ones(2), torch.ones(2 + odd(rank))], name="group")


@pytest.mark.parametrize("start", [
    lambda hvd, name: hvd.allreduce_async(torch.ones(4), name=name),
    lambda hvd, name: hvd.allgather_async(torch.ones(4), name=name),
    lambda hvd, name: hvd.broadcast_async(torch.ones(4), 0, name=name),
    lambda hvd, name: hvd.grouped_allreduce_async([torch.ones(4), torch.ones(4)], name=name),
], ids=["allreduce", "allgather", "broadcast", "grouped_allreduce"])
def test_a_name_may_be_in_flight_once(hvd, rank, start):
    if rank == 0:
        first = start(hvd, "duplicate")
        with pytest.raises(ValueError, match="duplicate"):
            start(hvd, "duplicate")
    hvd.barrier()
    if rank != 0:
        first = start(hvd, "duplicate")
    assert hvd.synchronize(first) is not None
    assert hvd.synchronize(start(hvd, "duplicate")) is not None
    assert hvd.synchronize(start(hvd, None)) is not None, "ranks no longer agree about operations without a name"


def test_a_group_with_a_name_in_flight_is_rejected_as_a_whole(hvd, rank):
    tensors = [torch.ones(2), torch.ones(2)]
    if rank == 0:
        first = hvd.grouped_allreduce_async(tensors, name="whole")
        with pytest.raises(ValueError):
            hvd.grouped_allreduce_async(tensors, name="whole")
    hvd.barrier()
    if rank != 0:
        first = hvd.grouped_allreduce_async(tensors, name="whole")
    hvd.synchronize(first)


@pytest.mark.parametrize("verb", ["allreduce", "allreduce_", "allgather", "broadcast", "broadcast_"])
@pytest.mark.parametrize("tensor,text", [
    (torch.ones(4, 4).t()[1:], "not contiguous"),
    (torch.ones(8)[::2], "not contiguous"),
    (torch.ones(2, dtype=torch.complex64), "complex64"),
    (torch.eye(3).to_sparse(), "sparse"),
    (torch._neg_view(torch.ones(2)), "resolve_neg"),
], ids=["transposed", "strided", "complex", "sparse", "negative"])
def test_tensors_that_cannot_be_sent(hvd, verb, tensor, text):
    more = (0,) if verb.startswith("broadcast") else ()
    with pytest.raises(ValueError, match=text):
        getattr(hvd, verb)(tensor, *more, name="refused")
    with pytest.raises(ValueError, match=text):
        getattr(hvd, verb)(tensor, *more)


def test_not_a_tensor(hvd):
    with pytest.raises(TypeError):
        hvd.allreduce([1.0, 2.0], name="list")


def test_unknown_op(hvd):
    with pytest.raises(ValueError):
        hvd.allreduce(torch.ones(1), op=17)
