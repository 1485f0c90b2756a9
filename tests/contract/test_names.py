"""Every public name with its signature, and the names that scripts import from inner modules."""
import importlib
import inspect
import subprocess

import pytest
import torch

import horovod
import horovod.torch as hvd
from ranks import HOROVODRUN, alone

pytestmark = alone

# The signatures of the contract. P stands for the global process set, NONE for Compression.none.
PP = "prescale_factor=1.0, postscale_factor=1.0"
SIGNATURES = {
    "allreduce": f"tensor, average=None, name=None, compression=NONE, op=None, {PP}, process_set=P",
    "allreduce_async": f"tensor, average=None, name=None, op=None, {PP}, process_set=P",
    "allreduce_": f"tensor, average=None, name=None, op=None, {PP}, process_set=P",
    "allreduce_async_": f"tensor, average=None, name=None, op=None, {PP}, process_set=P",
    "grouped_allreduce": f"tensors, average=None, name=None, compression=NONE, op=None, {PP}, process_set=P",
    "grouped_allreduce_async": f"tensors, average=None, name=None, op=None, {PP}, process_set=P",
    "grouped_allreduce_": f"tensors, average=None, name=None, op=None, {PP}, process_set=P",
    "grouped_allreduce_async_": f"tensors, average=None, name=None, op=None, {PP}, process_set=P",
    "sparse_allreduce_async": "tensor, name, op, process_set=P",
    "allgather": "tensor, name=None, process_set=P",
    "allgather_async": "tensor, name=None, process_set=P",
    "grouped_allgather": "tensors, name=None, process_set=P",
    "grouped_allgather_async": "tensors, name=None, process_set=P",
    "broadcast": "tensor, root_rank, name=None, process_set=P",
    "broadcast_async": "tensor, root_rank, name=None, process_set=P",
    "broadcast_": "tensor, root_rank, name=None, process_set=P",
    "broadcast_async_": "tensor, root_rank, name=None, process_set=P",
    "alltoall": "tensor, splits=None, name=None, process_set=P",
    "alltoall_async": "tensor, splits=None, name=None, process_set=P",
    "reducescatter": f"tensor, name=None, compression=NONE, op=0, process_set=P, {PP}",
    "reducescatter_async": f"tensor, name=None, op=0, process_set=P, {PP}",
    "grouped_reducescatter": f"tensors, name=None, compression=NONE, op=0, process_set=P, {PP}",
    "grouped_reducescatter_async": f"tensors, name=None, op=0, process_set=P, {PP}",
    "join": "device=-1",
    "barrier": "process_set=P",
    "poll": "handle",
    "synchronize": "handle",
    "broadcast_parameters": "params, root_rank",
    "broadcast_optimizer_state": "optimizer, root_rank, model=None",
    "broadcast_object": "obj, root_rank=0, name=None, process_set=P",
    "allgather_object": "obj, name=None",
    "start_timeline": "file_path, mark_cycles=False",
    "stop_timeline": "",
    **dict.fromkeys(["is_initialized", "size", "rank", "local_size", "local_rank", "cross_size", "cross_rank",
                     "mpi_threads_supported", "mpi_enabled", "mpi_built", "gloo_enabled", "gloo_built", "nccl_built",
                     "ddl_built", "ccl_built", "cuda_built", "rocm_built"], ""),
    "DistributedOptimizer": "optimizer, named_parameters=None, compression=NONE, backward_passes_per_step=1, op=0, "
                            "gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=False, "
                            "process_set=P",
    "SyncBatchNorm": "num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True",
    "ProcessSet": "ranks_or_comm",
    "add_process_set": "process_set",
    "remove_process_set": "process_set",
    "_check_has_gpu": "",
}


def written(parameter):
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        return None
    if parameter.default is inspect.Parameter.empty:
        return parameter.name
    known = {id(hvd.global_process_set): "P", id(hvd.Compression.none): "NONE"}
    return f"{parameter.name}={known.get(id(parameter.default), repr(parameter.default))}"


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_public_function_takes_its_arguments_in_this_order(name):
    """Contract §2.2 signatures, §2.1 exported names"""
    wanted = [part for part in SIGNATURES[name].split(", ") if part]
    found = [each for each in map(written, inspect.signature(getattr(hvd, name)).parameters.values()) if each]
    assert found[:len(wanted)] == wanted
    assert all("=" in extra for extra in found[len(wanted):]), "what we add beyond has defaults"


def test_init_takes_a_world_and_process_sets():
    """Contract §1.2 init, §2.1"""
    parameters = inspect.signature(hvd.init).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    assert list(parameters) == ["comm", "process_sets"] or inspect.Parameter.VAR_KEYWORD in kinds
    assert callable(hvd.shutdown)


@pytest.mark.parametrize("name", ["global_process_set", "Average", "Sum", "Adasum", "Min", "Max", "Product",
                                  "Compression", "HorovodInternalError"])
def test_a_public_thing_is_there(name):
    """Contract §2.1 exported names"""
    assert hasattr(hvd, name)


@pytest.mark.parametrize("name", ["none", "fp16"])
def test_compressors_are_there(name):
    """Contract §2.11 Compression"""
    assert callable(getattr(hvd.Compression, name).compress) and callable(getattr(hvd.Compression, name).decompress)


def test_a_gpu_is_there_if_torch_sees_one():
    """Contract §2.1 _check_has_gpu"""
    assert hvd._check_has_gpu() is torch.cuda.is_available()


INNER = {
    "horovod.torch.mpi_ops": """
        is_homogeneous _basics handle_average_backwards_compatibility allreduce allreduce_ allreduce_async
        allreduce_async_ grouped_allreduce grouped_allreduce_ grouped_allreduce_async grouped_allreduce_async_
        sparse_allreduce_async allgather allgather_async grouped_allgather grouped_allgather_async broadcast
        broadcast_ broadcast_async broadcast_async_ alltoall alltoall_async reducescatter reducescatter_async
        grouped_reducescatter grouped_reducescatter_async join barrier poll synchronize init shutdown is_initialized
        start_timeline stop_timeline size rank local_size local_rank cross_size cross_rank mpi_threads_supported
        mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built ccl_built cuda_built rocm_built Average
        Sum Adasum Min Max Product ProcessSet global_process_set add_process_set remove_process_set
        HorovodInternalError check_installed_version gpu_available num_rank_is_power_2 Compression mpi_lib
        _handle_map HorovodAllreduce HorovodGroupedAllreduce HorovodAllgather HorovodGroupedAllgather
        HorovodBroadcast HorovodAlltoall HorovodReducescatter HorovodGroupedReducescatter""",
    "horovod.torch.functions": "broadcast_parameters broadcast_optimizer_state broadcast_object allgather_object",
    "horovod.torch.optimizer": "DistributedOptimizer _DistributedOptimizer _DistributedAdasumOptimizer",
    "horovod.torch.compression": "Compression Compressor NoneCompressor FP16Compressor",
    "horovod.torch.sync_batch_norm": "SyncBatchNorm",
    "horovod.common.basics": "HorovodBasics",
    "horovod.common.exceptions": """
        HorovodInternalError HostsUpdatedInterrupt HorovodVersionMismatchError get_version_mismatch_message""",
    "horovod.common.process_sets": """
        ProcessSet global_process_set add_process_set remove_process_set _setup _init_process_sets
        _temp_process_set_object""",
    "horovod.common.util": """
        extension_available gpu_available mpi_built gloo_built nccl_built ddl_built ccl_built _cache env
        get_average_backwards_compatibility_fun num_rank_is_power_2 split_list is_iterable get_ext_suffix
        get_extension_full_path check_extension check_installed_version is_version_greater_equal_than EXTENSIONS""",
    "horovod.common.elastic": "State ObjectState run_fn notification_manager",
    "horovod.data": "BaseDataLoader AsyncDataLoaderMixin",
    "horovod.data.data_loader_base": "BaseDataLoader AsyncDataLoaderMixin",
}


@pytest.mark.parametrize("module, name", [(module, name) for module, names in INNER.items() for name in names.split()])
def test_an_inner_module_has_the_name_that_scripts_import(module, name):
    """Contract §2.1 sub-modules, §1.4–1.7, parity 1.2"""
    assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize("name", ["HorovodAllreduce", "HorovodGroupedAllreduce", "HorovodAllgather", "HorovodBroadcast",
                                  "HorovodGroupedAllgather", "HorovodAlltoall", "HorovodReducescatter",
                                  "HorovodGroupedReducescatter"])
def test_the_differentiable_ops_are_functions_of_autograd(name):
    """Contract §2.2, parity 1.2"""
    assert issubclass(getattr(hvd.mpi_ops, name), torch.autograd.Function)


METHODS = {"load_state_dict": ({},), "set_backward_passes_per_step": (2,), "synchronize": (), "skip_synchronize": (),
           "step": (None,), "zero_grad": (), "find_duplicates": ([],)}


@pytest.mark.parametrize("name", METHODS)
def test_the_distributed_optimizer_has_its_methods(name):
    """Contract §2.12, parity 1.2"""
    parameter = torch.nn.Parameter(torch.ones(1))
    hvd.init()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=0.1), named_parameters=[("p", parameter)])
    hvd.shutdown()
    inspect.signature(getattr(optimizer, name)).bind(*METHODS[name])


def test_process_set_errors_have_their_numbers():
    """Contract §1.3 process-set error codes, parity 1.2"""
    from horovod.common import basics
    names = ["INIT", "DYNAMIC", "UNKNOWN_SET", "FOREIGN_SET", "SHUTDOWN", "EXISTING_SET"]
    names = [f"HOROVOD_PROCESS_SET_ERROR_{name}" for name in names]
    home = hvd.mpi_ops._basics if hasattr(hvd.mpi_ops._basics, names[0]) else basics
    assert [getattr(home, name) for name in names] == [-1, -2, -3, -4, -5, -6]


def test_basics_take_the_path_of_a_package():
    """Contract §1.2 HorovodBasics(pkg_path, *path_parts)"""
    from horovod.common.basics import HorovodBasics
    made = HorovodBasics(hvd.__file__, "mpi_lib_v2")
    assert made.Average == 0 and made.is_initialized() in (False, True)
    for name in ("_process_set_size", "_process_set_rank", "_add_process_set_impl", "_remove_process_set_impl",
                 "_comm_process_set_id", "_get_process_set_ids_and_ranks"):
        assert callable(getattr(made, name))


def test_the_version_is_what_horovodrun_prints():
    """Contract §1.1 package layout"""
    assert isinstance(horovod.__version__, str)
    found = subprocess.run([HOROVODRUN, "--version"], stdout=subprocess.PIPE, text=True, timeout=50)
    assert found.returncode == 0 and horovod.__version__ in found.stdout


def test_run_is_that_of_the_runner():
    """Contract §1.1 package layout"""
    from horovod.runner import run
    assert horovod.run is run


def test_the_extension_has_its_file_and_can_be_imported():
    """Contract §1.1 package layout"""
    import ctypes
    extension = importlib.import_module("horovod.torch.mpi_lib_v2")
    assert ctypes.CDLL(extension.__file__, mode=ctypes.RTLD_GLOBAL).horovod_rank
