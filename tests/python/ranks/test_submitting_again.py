"""After the first step, operations are started by what is remembered under their names. The results must be the
same."""
import inspect

import pytest
import torch


@pytest.fixture(params=["by DLPack", "by asking"])
def reading(request, monkeypatch):
    """The way in which the extension reads tensors. Older versions of torch lack the table of C functions for
    DLPack."""
    if request.param == "by asking":
        monkeypatch.setattr(torch.Tensor, "__dlpack_c_exchange_api__", None, raising=False)
    return request.param.replace(" ", ".")


def negative_view():
    return torch.complex(torch.zeros(1), torch.full((1,), 5.0)).conj().imag


KINDS = {
    "shape": lambda: torch.full((3, 2), 5.0), "shape of the same size": lambda: torch.full((4, 1), 5.0),
    "dtype": lambda: torch.full((4,), 5, dtype=torch.int32),
    "bfloat16": lambda: torch.full((4,), 5.0, dtype=torch.bfloat16),
    "float16": lambda: torch.full((4,), 5.0, dtype=torch.float16), "scalar": lambda: torch.tensor(5.0),
    "empty": lambda: torch.ones(0, 4), "parameter": lambda: torch.nn.Parameter(torch.full((4,), 5.0), False)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_may_stand_for_another_tensor_in_every_step(hvd, rank, size, reading, kind):
    name = f"again.{reading}.{kind}"
    for make in (lambda: torch.full((4,), 5.0), KINDS[kind], KINDS[kind], lambda: torch.full((4,), 5.0)):
        tensor = make()
        expected = tensor.detach() * (size * (size - 1) // 2)
        tensor *= rank
        assert torch.equal(hvd.synchronize(hvd.allreduce_async(tensor, op=hvd.Sum, name=name)), expected)
        assert hvd.synchronize(hvd.allreduce_async_(tensor, op=hvd.Sum, name=name)) is tensor
        assert torch.equal(tensor.detach(), expected)


def test_the_way_of_reducing_may_change_under_one_name(hvd, rank, size, reading):
    name = f"ways.{reading}"
    for _ in range(2):
        for arguments, expected in ((dict(), (size + 1) / 2), (dict(op=hvd.Sum), size * (size + 1) / 2),
                                    (dict(average=False), size * (size + 1) / 2), (dict(op=hvd.Max), float(size)),
                                    (dict(op=hvd.Sum, prescale_factor=0.5), size * (size + 1) / 4),
                                    (dict(op=hvd.Sum, postscale_factor=2), size * (size + 1.0)),
                                    (dict(op=hvd.Average), (size + 1) / 2)):
            result = hvd.allreduce_(torch.full((3,), rank + 1.0), name=name, **arguments)
            assert torch.equal(result, torch.full((3,), expected)), arguments


@pytest.mark.parametrize("make,text", [
    (lambda: torch.full((8,), 5.0)[::2], "not contiguous"), (negative_view, "resolve_neg"),
    (lambda: torch.full((4,), 5.0, dtype=torch.complex64), "complex64"), (lambda: torch.eye(4).to_sparse(), "sparse"),
    (lambda: [5.0] * 4, "torch.Tensor")], ids=["strided", "negative", "complex", "sparse", "list"])
def test_what_cannot_be_sent_is_refused_under_a_known_name_too(hvd, reading, make, text):
    for like in (torch.full((4,), 5.0), torch.full((1,), 5.0)):
        name = f"refused.again.{reading}.{text}.{len(like)}"
        hvd.allreduce_(like, name=name)
        for start in (hvd.allreduce, hvd.allreduce_, hvd.allreduce_async, hvd.allreduce_async_):
            with pytest.raises((TypeError, ValueError), match=text):
                start(make(), name=name)


def test_steps_of_dimensions_with_one_element_do_not_matter(hvd, size, reading):
    name = f"one.{reading}"
    for tensor in (torch.ones(3, 1), torch.ones(3, 4)[:, :1].contiguous().as_strided((3, 1), (1, 7)), torch.ones(3, 1)):
        hvd.allreduce_(tensor, op=hvd.Sum, name=name)
        assert torch.equal(tensor, torch.full((3, 1), float(size)))


def test_a_group_may_consist_of_other_tensors_in_every_step(hvd, rank, size, reading):
    name = f"group.{reading}"
    groups = [[torch.ones(3), torch.full((2, 2), 2.0)], [torch.ones(3), torch.full((4,), 2.0)],
              [torch.ones(3), torch.full((2, 2), 2, dtype=torch.int64)], [torch.ones(3)],
              [torch.ones(3), torch.full((2, 2), 2.0), torch.ones(1)]]
    for group in [groups[0], groups[0], *groups, groups[0]]:
        for start in (hvd.grouped_allreduce, hvd.grouped_allreduce_):
            given = [tensor.clone() * (rank + 1) for tensor in group]
            results = start(given, op=hvd.Sum, name=name)
            assert all(torch.equal(result, tensor * (size * (size + 1) // 2)) for result, tensor in zip(results, group))
            if start is hvd.grouped_allreduce_:
                assert all(result is tensor for result, tensor in zip(results, given))
            else:
                assert all(torch.equal(tensor, before * (rank + 1)) for tensor, before in zip(given, group))
    for arguments, expected in ((dict(), 1.0), (dict(op=hvd.Max), 1.0),
                                (dict(op=hvd.Sum, prescale_factor=0.5), size / 2)):
        assert torch.equal(hvd.grouped_allreduce(groups[0], name=name, **arguments)[0], torch.full((3,), expected))
    with pytest.raises(ValueError, match="not contiguous"):
        hvd.grouped_allreduce([torch.ones(3), torch.ones(2, 4)[:, ::2]], op=hvd.Sum, name=name)


def test_a_tensor_may_have_the_name_that_a_group_is_known_by(hvd, size):
    for _ in range(3):
        expected = torch.full((2,), float(size))
        assert torch.equal(hvd.grouped_allreduce([torch.ones(2)] * 2, op=hvd.Sum, name="both")[1], expected)
        assert torch.equal(hvd.allreduce(torch.ones(2), op=hvd.Sum, name="both#2"), expected)


def test_a_known_name_in_flight_is_refused(hvd, rank):
    for _ in range(2):
        hvd.allreduce_(torch.ones(4), name="known in flight")
    if rank == 0:
        first = hvd.allreduce_async_(torch.ones(4), name="known in flight")
        with pytest.raises(ValueError, match="known in flight"):
            hvd.allreduce_async_(torch.ones(4), name="known in flight")
    hvd.barrier()
    if rank != 0:
        first = hvd.allreduce_async_(torch.ones(4), name="known in flight")
    hvd.synchronize(first)


def test_what_is_in_flight_keeps_its_tensors_alive(hvd, size):
    for _ in range(3):
        handles = [hvd.allreduce_async(torch.full((1000,), float(i)), op=hvd.Sum, name=f"alive.{i}") for i in range(50)]
        for i, handle in enumerate(handles):
            assert torch.equal(hvd.synchronize(handle), torch.full((1000,), float(i * size)))


class TestManyHandles:
    """Tests of horovod.torch.mpi_ops.synchronize_all."""

    def test_gives_the_outputs_in_order(self, hvd, size):
        from horovod.torch.mpi_ops import synchronize_all
        tensors = [torch.full((5,), float(i)) for i in range(20)]
        handles = [hvd.allreduce_async_(tensor, op=hvd.Sum, name=f"many.{i}") for i, tensor in enumerate(tensors)]
        handles.append(hvd.allgather_async(torch.ones(2), name="many"))
        outputs = synchronize_all(iter(handles))
        assert all(output is tensor for output, tensor in zip(outputs, tensors))
        assert torch.equal(outputs[7], torch.full((5,), 7.0 * size)) and outputs[20].shape == (2 * size,)
        assert synchronize_all(handles) == [None] * 21 and synchronize_all([]) == []

    def test_waits_for_all_and_raises_the_first_failure(self, hvd, rank, size):
        from horovod.torch.mpi_ops import synchronize_all
        good = [torch.ones(3) for _ in range(4)]
        handles = [hvd.allreduce_async_(good[0], op=hvd.Sum, name="fine.0"),
                   hvd.allreduce_async_(torch.ones(2 + rank), name="odd.1"),
                   hvd.allreduce_async_(good[1], op=hvd.Sum, name="fine.1"),
                   hvd.allreduce_async_(torch.ones(7 + rank), name="odd.2"),
                   *[hvd.allreduce_async_(tensor, op=hvd.Sum, name=f"fine.{i}")
                     for i, tensor in enumerate(good[2:], 2)]]
        if size == 1:
            return
        with pytest.raises(hvd.HorovodInternalError, match="odd.1"):
            synchronize_all(handles)
        assert all(torch.equal(tensor, torch.full((3,), float(size))) for tensor in good)
        assert synchronize_all(handles) == [None] * len(handles)


def test_synchronize_and_poll_can_be_looked_at_and_called_as_ever(hvd):
    assert list(inspect.signature(hvd.synchronize).parameters) == ["handle"]
    assert list(inspect.signature(hvd.poll).parameters) == ["handle"]
    assert "Waits" in hvd.synchronize.__doc__
    handle = hvd.allreduce_async(torch.ones(2), name="by keyword")
    assert isinstance(handle, int)
    assert torch.equal(hvd.synchronize(handle=handle), torch.ones(2))
    assert hvd.synchronize(handle) is None and hvd.poll(handle=handle)
    for wrong in ((), (handle, handle)):
        with pytest.raises(TypeError):
            hvd.synchronize(*wrong)
