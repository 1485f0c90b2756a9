"""Tensors that no verb can communicate. Every verb refuses each of them; the error names the tensor and a remedy."""
import pytest
import torch

import horovod.torch as hvd


@pytest.fixture(scope="module", autouse=True)
def running():
    hvd.init()
    yield
    hvd.shutdown()


def of_a_mesh():
    from torch.distributed import HashStore, destroy_process_group, init_process_group
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        return distribute_tensor(torch.ones(4), init_device_mesh("cpu", (1,)), [Shard(0)])
    finally:
        destroy_process_group()


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode():
        return torch.ones(4)


class Wraps(torch.Tensor):
    """A tensor class that wraps another tensor, as libraries for quantisation and tensor parallelism have."""

    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), named=None):
        return function(*(a.inner if isinstance(a, cls) else a for a in arguments), **(named or {}))


def freed():
    tensor = torch.ones(4)
    tensor.untyped_storage().resize_(0)
    return tensor


REFUSED = {
    "DTensor": (of_a_mesh, "to_local"), "fake": (fake, "FakeTensor"),
    "wrapper": (lambda: Wraps(torch.ones(4)), "Wraps"),
    "meta": (lambda: torch.ones(4, device="meta"), "to_empty"), "freed": (freed, "no memory"),
    "zero": (lambda: torch._efficientzerotensor(4), "no memory"),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "to_padded_tensor"),
    "jagged": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), "unbind"),
    "lazy": (lambda: torch.nn.LazyLinear(2).weight, "run the model"),
    "complex": (lambda: torch.ones(2, dtype=torch.complex64), "view_as_real"),
    "float8": (lambda: torch.ones(4).to(torch.float8_e4m3fn), "float8_e4m3fn"),
    "csr": (lambda: torch.eye(4).to_sparse_csr(), "to_dense"),
    "not a tensor": (lambda: [1.0, 2.0], "torch.Tensor")}

VERBS = {
    "allreduce": hvd.allreduce, "allreduce_": hvd.allreduce_, "allreduce_async": hvd.allreduce_async,
    "allreduce_async_": hvd.allreduce_async_, "allgather": hvd.allgather, "allgather_async": hvd.allgather_async,
    "broadcast": lambda x, **named: hvd.broadcast(x, 0, **named),
    "broadcast_": lambda x, **named: hvd.broadcast_(x, 0, **named),
    "broadcast_async_": lambda x, **named: hvd.broadcast_async_(x, 0, **named),
    "grouped_allreduce": lambda x, **named: hvd.grouped_allreduce([torch.ones(2), x], **named),
    "grouped_allreduce_": lambda x, **named: hvd.grouped_allreduce_([torch.ones(2), x], **named),
    "grouped_allgather": lambda x, **named: hvd.grouped_allgather([torch.ones(2), x], **named)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("verb", VERBS)
def test_refused_with_advice(kind, verb):
    make, text = REFUSED[kind]
    tensor = make()
    for named in (dict(name="odd"), dict()):
        with pytest.raises((TypeError, ValueError), match=text) as raised:
            VERBS[verb](tensor, **named)
        assert verb.replace("_async", "").rstrip("_") in str(raised.value)


@pytest.mark.parametrize("transform", [torch.func.vmap, torch.func.grad], ids=["vmap", "grad"])
def test_refused_within_a_transformation(transform):
    def compute(x):
        return hvd.allreduce(x, name="within").sum()

    with pytest.raises((RuntimeError, ValueError), match="torch.func|vmap|setup_context|functorch"):
        transform(compute)(torch.ones(3) if transform is torch.func.grad else torch.ones(3, 2))


@pytest.mark.parametrize("tensor", [torch.ones(4), torch.eye(3).to_sparse_csr(), [1.0]], ids=["dense", "csr", "list"])
def test_sparse_allreduce_takes_sparse_tensors(tensor):
    with pytest.raises(ValueError, match="torch.sparse_coo"):
        hvd.sparse_allreduce_async(tensor, "dense", hvd.Sum)


def test_complex_numbers_go_as_pairs_of_real_ones():
    numbers = torch.complex(torch.ones(3), torch.full((3,), 2.0))
    hvd.allreduce_(torch.view_as_real(numbers), op=hvd.Sum, name="pairs")
    assert torch.equal(numbers, torch.complex(torch.ones(3), torch.full((3,), 2.0)))


def test_plain_subclasses_and_empty_tensors_are_taken():
    class Named(torch.Tensor):
        pass

    for tensor in (torch.ones(3).as_subclass(Named), torch.ones(0, 3), torch.nn.Parameter(torch.ones(2)),
                   torch.nn.Buffer(torch.ones(2)) if hasattr(torch.nn, "Buffer") else torch.ones(2)):
        for _ in range(2):
            assert torch.equal(hvd.allreduce(tensor.detach(), name="taken"), tensor)
            assert torch.equal(hvd.allgather(tensor.detach(), name="taken"), tensor)


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_objects_travel_whatever_the_default_device_is(device):
    with torch.device(device):
        assert hvd.broadcast_object({"epoch": 3}, name="object") == {"epoch": 3}
        assert hvd.allgather_object([1, 2], name="object") == [[1, 2]]
        x = torch.ones(2, device="cpu", requires_grad=True)
        hvd.allgather(x).sum().backward()
        hvd.grouped_allgather([x])[0].sum().backward()
        assert x.grad.device.type == "cpu"
