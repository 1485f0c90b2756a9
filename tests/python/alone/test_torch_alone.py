"""horovod.torch in a process that no launcher started. The process is a job of one rank."""
import importlib.util
import inspect
import subprocess
import sys
import types

import pytest
import torch

import horovod.torch as hvd
from horovod.torch import _allreduce, _tensors

EXPORTED = """init shutdown is_initialized start_timeline stop_timeline size local_size cross_size rank local_rank
cross_rank mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built ccl_built cuda_built
rocm_built ProcessSet global_process_set add_process_set remove_process_set Average Sum Adasum Min Max Product
HorovodInternalError allreduce allreduce_async allreduce_ allreduce_async_ grouped_allreduce grouped_allreduce_async
grouped_allreduce_ grouped_allreduce_async_ sparse_allreduce_async allgather allgather_async grouped_allgather
grouped_allgather_async broadcast broadcast_async broadcast_ broadcast_async_ alltoall alltoall_async reducescatter
reducescatter_async grouped_reducescatter grouped_reducescatter_async join barrier poll synchronize Compression
broadcast_parameters broadcast_optimizer_state broadcast_object allgather_object DistributedOptimizer SyncBatchNorm
_check_has_gpu""".split()


@pytest.fixture
def running():
    hvd.init()
    yield hvd
    hvd.shutdown()


def test_names():
    assert not [name for name in EXPORTED if not hasattr(hvd, name)]
    assert (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product) == (0, 1, 2, 3, 4, 5)
    from horovod.torch import compression, functions, mpi_ops, optimizer, sync_batch_norm
    assert mpi_ops._basics and mpi_ops.is_homogeneous and mpi_ops.handle_average_backwards_compatibility
    assert compression.Compressor and functions.broadcast_object and optimizer.DistributedOptimizer
    assert sync_batch_norm.SyncBatchNorm


def test_a_reduce_operation_whose_gradient_is_not_known_is_refused_in_backward():
    how = types.SimpleNamespace(how=(6, 1.0, 1.0, hvd.global_process_set), saved_tensors=())
    for function in (_allreduce.HorovodAllreduce, _allreduce.HorovodGroupedAllreduce):
        with pytest.raises(NotImplementedError, match="op=6 has no gradient; expected a tensor that needs none"):
            function.backward(how, torch.ones(3))


@pytest.mark.parametrize("name,parameters", {
    "allreduce": "tensor average name compression op prescale_factor postscale_factor process_set",
    "allreduce_async": "tensor average name op prescale_factor postscale_factor process_set",
    "allreduce_": "tensor average name op prescale_factor postscale_factor process_set",
    "allreduce_async_": "tensor average name op prescale_factor postscale_factor process_set",
    "grouped_allreduce": "tensors average name compression op prescale_factor postscale_factor process_set",
    "grouped_allreduce_async_": "tensors average name op prescale_factor postscale_factor process_set",
    "sparse_allreduce_async": "tensor name op process_set",
    "allgather": "tensor name process_set",
    "grouped_allgather": "tensors name process_set",
    "broadcast": "tensor root_rank name process_set",
    "broadcast_async_": "tensor root_rank name process_set",
    "alltoall": "tensor splits name process_set",
    "reducescatter": "tensor name compression op process_set prescale_factor postscale_factor",
    "reducescatter_async": "tensor name op process_set prescale_factor postscale_factor",
    "join": "device",
    "barrier": "process_set",
    "broadcast_object": "obj root_rank name process_set",
    "broadcast_optimizer_state": "optimizer root_rank model process_set",
}.items())
def test_signatures(name, parameters):
    assert list(inspect.signature(getattr(hvd, name)).parameters) == parameters.split()


def test_one_rank_without_a_launcher(running):
    assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()) == (0, 1, 0, 1)
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)
    x = torch.arange(6.0).view(2, 3)
    assert torch.equal(hvd.allreduce(x), x) and torch.equal(hvd.allgather(x), x)
    assert torch.equal(hvd.broadcast(x, 0), x)
    assert torch.equal(hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0), 2 * x)
    assert hvd.broadcast_object({"a": 1}) == {"a": 1} and hvd.allgather_object(3) == [3]
    for verb in (hvd.broadcast, hvd.broadcast_object):
        with pytest.raises(ValueError, match=f"^{verb.__name__}: root_rank is the number of a rank, not 'first'"):
            verb(x, root_rank="first")
    hvd.barrier()


def test_the_optimizer_of_one_rank_is_the_plain_one(running):
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), [("p", parameter)], op=hvd.Adasum)
    parameter.sum().backward()
    optimizer.step()
    assert torch.equal(parameter.detach(), torch.zeros(3))


def test_before_init():
    assert not hvd.is_initialized()
    with pytest.raises(ValueError, match="initialized"):
        hvd.rank()
    with pytest.raises(hvd.HorovodInternalError, match="initialized"):
        hvd.allreduce(torch.ones(1))
    with pytest.raises(hvd.HorovodInternalError, match="initialized"):
        hvd.broadcast(torch.ones(1), 0)
    assert hvd.mpi_built() in (True, False) and not hvd.mpi_enabled() and hvd.nccl_built() == 0
    hvd.shutdown()


class TestOptimizerArguments:
    """The checks of arguments that work before init()."""

    model = torch.nn.Linear(2, 2)

    def make(self, **arguments):
        return hvd.DistributedOptimizer(torch.optim.SGD(self.model.parameters(), lr=0.1), **arguments)

    def test_duplicate_names(self):
        with pytest.raises(ValueError, match="duplicates"):
            self.make(named_parameters=[("same", p) for p in self.model.parameters()])

    def test_not_tuples(self):
        with pytest.raises(ValueError, match="tuples"):
            self.make(named_parameters=list(self.model.parameters()))

    def test_missing_parameter(self):
        with pytest.raises(ValueError, match="named_parameters"):
            self.make(named_parameters=list(self.model.named_parameters())[:1])

    @pytest.mark.parametrize("arguments", [
        dict(gradient_predivide_factor=2.0, op=hvd.Sum), dict(backward_passes_per_step=0), dict(groups=0),
        dict(groups=-2), dict(groups="two"), dict(groups=[["not a tensor"]])], ids=str)
    def test_other_arguments(self, arguments):
        with pytest.raises(ValueError):
            self.make(named_parameters=self.model.named_parameters(), **arguments)

    def test_parameter_in_two_groups(self):
        with pytest.raises(ValueError, match="more than once"):
            self.make(named_parameters=self.model.named_parameters(),
                      groups=[[self.model.weight], [self.model.weight]])


    @pytest.mark.parametrize("arguments", [{}, dict(groups=2), dict(op=hvd.Adasum), dict(gradient_views=True)], ids=str)
    def test_nothing_is_distributed_before_init(self, arguments):
        """Such an optimizer would get no hooks, also not after init(): every rank would train alone, without any
        error."""
        plain = torch.optim.SGD(self.model.parameters(), lr=0.1)
        with pytest.raises(ValueError, match="not been initialized; use hvd.init"):
            hvd.DistributedOptimizer(plain, self.model.named_parameters(), **arguments)
        assert type(plain) is torch.optim.SGD

    def test_what_is_no_optimizer(self):
        with pytest.raises(TypeError, match="takes a torch optimizer, not Linear"):
            hvd.DistributedOptimizer(self.model)


@pytest.mark.parametrize("arguments", [dict(comm="world"), dict(comm=17), dict(comm=[0, 1])], ids=str)
def test_init_arguments(arguments):
    with pytest.raises(ValueError):
        hvd.init(**arguments)
    assert not hvd.is_initialized()


class TestProcessSetsOfOneRank:
    """A job of one rank can have only the global process set."""

    def test_it_cannot_be_made_again(self):
        for ranks in ([0], []):
            with pytest.raises(ValueError, match="index 0"):
                hvd.init(process_sets=[hvd.ProcessSet(ranks)])
            assert hvd.is_initialized()
            hvd.init(process_sets=[])
            with pytest.raises(ValueError, match="HOROVOD_DYNAMIC_PROCESS_SETS"):
                hvd.add_process_set(ranks)
            hvd.shutdown()

    def test_sets_may_be_dynamic(self, monkeypatch):
        monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "0")
        hvd.init(comm=[], process_sets="Dynamic")
        for wrong in ([0], [], [1], [0, 0], [-1]):
            with pytest.raises(ValueError):
                hvd.add_process_set(wrong)
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 1.0
        hvd.shutdown()

    @pytest.mark.parametrize("sets", ["static", [[0]], [7]], ids=str)
    def test_what_is_no_set(self, sets):
        with pytest.raises(ValueError, match="list of ProcessSet"):
            hvd.init(process_sets=sets)
        assert not hvd.is_initialized()


@pytest.mark.parametrize("name,narrow", [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_compression(name, narrow):
    compression = getattr(hvd.Compression, name)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        tensor = torch.rand(5, 3).to(dtype)
        compressed, context = compression.compress(tensor)
        assert compressed.dtype == narrow
        again = compression.decompress(compressed, context)
        assert again.dtype == dtype
        torch.testing.assert_close(again, tensor, rtol=1e-2, atol=1e-2)
    integers = torch.arange(4)
    assert compression.compress(integers) == (integers, None)
    assert hvd.Compression.none.compress(integers) == (integers, None)


def test_a_name_that_is_not_there():
    assert not hasattr(hvd, "no_such_name")


def test_a_hundred_times():
    for _ in range(100):
        hvd.init()
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 1.0
        hvd.shutdown()


def test_tensors_of_a_device_that_the_core_does_not_know_are_copied_with_a_notice(running, capfd):
    from horovod.torch import _devices
    of_another_make = types.SimpleNamespace(is_cpu=False, is_cuda=False, is_meta=False, device=torch.device("xpu"))
    assert [_devices.ordinal_for(of_another_make, 0) for _ in range(2)] == [-1, -1]
    assert capfd.readouterr().err.count("no plugin for what torch calls xpu") == 1


def test_leaves_without_shutdown():
    code = "import torch, horovod.torch as hvd; hvd.init(); hvd.allreduce_async(torch.ones(3)); print('left')"
    found = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           timeout=100)
    assert (found.returncode, found.stdout, found.stderr) == (0, "left\n", "")


@pytest.mark.parametrize("error", [RuntimeError, TypeError])
def test_older_versions_of_torch_mark_one_tensor_as_changed_at_a_time(monkeypatch, error):
    marked = []

    def increment_version(tensor):
        if not isinstance(tensor, torch.Tensor):
            raise error("increment_version expects a tensor")
        marked.append(tensor)

    monkeypatch.setattr(torch.autograd.graph, "increment_version", increment_version)
    monkeypatch.setattr(torch._C, "_increment_version", increment_version)
    tensors = importlib.util.spec_from_file_location("tensors_of_older_torch", _tensors.__file__)
    module = importlib.util.module_from_spec(tensors)
    tensors.loader.exec_module(module)
    with torch.inference_mode():
        without_version = torch.zeros(1)
    a, b = torch.zeros(1), torch.zeros(2)
    module.note_change((a, without_version, b))
    assert [id(each) for each in marked] == [id(a), id(b)]
