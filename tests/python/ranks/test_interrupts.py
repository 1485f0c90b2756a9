"""Ctrl-C while a rank waits, as in a notebook. The operation goes on, and the tests run the same cell again."""
import pytest
import torch
from interrupting import interrupted


def test_an_interrupted_wait_leaves_the_operation_to_be_waited_for(hvd, rank, size):
    tensor = torch.full((4,), 2.0)
    if rank == 0:
        handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name="interrupted")
        assert interrupted(lambda: hvd.synchronize(handle))  # the other ranks submit later
    hvd.barrier()
    if rank != 0:
        handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name="interrupted")
    assert hvd.synchronize(handle) is tensor
    assert torch.equal(tensor, torch.full((4,), 2.0 * size))


@pytest.mark.parametrize("verb", ["allreduce", "allreduce_", "allgather", "grouped_allreduce"])
def test_a_cell_that_is_run_again_too_early_is_told_what_to_do_and_works_later(hvd, rank, size, verb):
    def cell():
        tensor = torch.full((4,), 2.0)
        return getattr(hvd, verb)([tensor] if verb.startswith("grouped") else tensor, name=f"cell.{verb}")

    if rank == 0:
        assert interrupted(cell)
        told = "in flight already.*interrupted.*hvd.shutdown\\(\\) and hvd.init\\(\\)"
        with pytest.raises(ValueError, match=told) as raised:
            cell()
        assert raised.value.id == "HVD2105"
    hvd.barrier()
    if rank != 0:
        cell()  # the other ranks complete the operation that rank 0 submitted
    hvd.barrier()
    result = cell()
    expected = torch.full((4 * size if verb == "allgather" else 4,), 2.0)
    assert torch.equal(result[0] if verb.startswith("grouped") else result, expected)


def test_a_name_in_flight_without_an_interrupt_is_not_explained_by_one(hvd, rank):
    if rank == 0:
        handle = hvd.allreduce_async_(torch.ones(2), name="mine")
        with pytest.raises(ValueError) as raised:
            hvd.allreduce_(torch.ones(2), name="mine")
        assert raised.value.id == "HVD2105" and "interrupted" not in str(raised.value)
    hvd.barrier()
    if rank != 0:
        handle = hvd.allreduce_async_(torch.ones(2), name="mine")
    hvd.synchronize(handle)


def test_everything_begins_anew_after_shutdown_and_init(hvd, rank, size):
    if rank == 0:
        assert interrupted(lambda: hvd.allreduce_(torch.ones(3), name="anew"))
    hvd.barrier()
    hvd.shutdown()
    hvd.init()
    assert torch.equal(hvd.allreduce_(torch.ones(3), op=hvd.Sum, name="anew"), torch.full((3,), float(size)))
