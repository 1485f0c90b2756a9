"""Features that this version lacks raise an error that names them. Small names that other packages import exist."""
import importlib
import importlib.util
import os
import threading

import pytest

import horovod.torch
from horovod.common import util
from horovod.runner.common.util.env import get_env_rank_and_size
from horovod.runner.util.threads import execute_function_multithreaded, in_thread, on_event


@pytest.mark.parametrize("statement", [
    "import horovod.mxnet", "import horovod.spark", "import horovod.spark.torch", "import horovod.ray"])
def test_an_import_names_what_is_missing_and_what_to_do(statement):
    for _ in range(2):
        with pytest.raises(ImportError, match=r"horovod\.\S+ is not part of this version of Horovod yet\. .+\.$"):
            exec(statement)


def test_frameworks_that_are_missing_are_not_available():
    assert util.extension_available("torch") and not util.extension_available("mxnet")
    assert util.extension_available("tensorflow") == (importlib.util.find_spec("tensorflow") is not None)


def test_what_is_meant_by_gloo_is_there():
    hvd = horovod.torch
    assert hvd.gloo_built() and util.gloo_built() and not hvd.gloo_enabled()
    hvd.init()
    try:
        assert hvd.gloo_enabled() is not hvd.mpi_enabled()
    finally:
        hvd.shutdown()


@pytest.mark.parametrize("module,names", {
    "horovod.torch.mpi_ops": "ProcessSet add_process_set remove_process_set global_process_set HorovodInternalError "
                             "check_installed_version gpu_available num_rank_is_power_2 Compression mpi_lib "
                             "_handle_map HorovodAllreduce HorovodGroupedAllreduce HorovodAllgather "
                             "HorovodGroupedAllgather HorovodBroadcast HorovodAlltoall HorovodReducescatter "
                             "HorovodGroupedReducescatter",
    "horovod.torch": "elastic",
    "horovod.torch.elastic": "run TorchState ElasticSampler",
    "horovod.torch.elastic.state": "TorchState StateHandler ModelStateHandler OptimizerStateHandler "
                                   "SamplerStateHandler get_handler_registry set_handler_registry",
    "horovod.torch.elastic.sampler": "ElasticSampler",
    "horovod.common.elastic": "State ObjectState run_fn notification_manager",
    "horovod.runner.elastic.worker": "HostUpdateResult WorkerNotificationManager",
    "horovod.common.util": "EXTENSIONS _cache split_list is_iterable",
}.items())
def test_names_that_others_import(module, names):
    found = importlib.import_module(module)
    assert not [name for name in names.split() if not hasattr(found, name)]


def test_extras_are_named_as_horovods():
    from importlib.metadata import PackageNotFoundError, metadata
    try:
        extras = metadata("horovod").get_all("Provides-Extra")
    except PackageNotFoundError:
        pytest.skip("horovod is not installed, but run from a build tree")
    assert {"tensorflow", "tensorflow-cpu", "tensorflow-gpu", "keras", "pytorch", "mxnet", "spark", "pytorch-spark",
            "ray", "all-frameworks", "dev", "test"} <= set(extras)


class TestThreads:
    def test_in_thread(self):
        done = []
        thread = in_thread(done.append, (3,), name="adds")
        thread.join()
        assert done == [3] and thread.name == "adds" and thread.daemon
        with pytest.raises(ValueError, match=r"must be a tuple, not <class 'int'>, for a single argument use \(arg,\)"):
            in_thread(done.append, 3)
        in_thread(lambda: 1 / 0, silent=True).join()

    def test_on_event(self):
        event, stop, done = threading.Event(), threading.Event(), []
        thread = on_event(event, done.append, (1,), stop=stop, check_stop_interval_s=0.01)
        event.set()
        thread.join()
        never = on_event(threading.Event(), done.append, (2,), stop=stop, check_stop_interval_s=0.01)
        stop.set()
        never.join()
        assert done == [1]
        for wrong, text in ((dict(event=None), "Event must not be None"), (dict(args=1), "args must be a tuple"),
                            (dict(daemon=False), "Stop event must be given")):
            with pytest.raises(ValueError, match=text):
                on_event(**{"event": event, "func": done.append, "args": (1,), **wrong})

    def test_many(self):
        assert execute_function_multithreaded(pow, [(2, i) for i in range(20)], max_concurrent_executions=3) == {
            i: 2 ** i for i in range(20)}
        assert execute_function_multithreaded(pow, []) == {}
        assert execute_function_multithreaded(pow, [(2, 2)], block_until_all_done=False) is None
        with pytest.raises(RuntimeError, match="did not complete"):
            execute_function_multithreaded(lambda x: 1 / x, [(1,), (0,)])


def test_rank_and_size_of_the_environment(monkeypatch):
    for name in list(os.environ):
        if name.endswith(("_RANK", "_SIZE")):
            monkeypatch.delenv(name)
    assert get_env_rank_and_size() == (0, 1)
    monkeypatch.setenv("PMI_RANK", "2")
    with pytest.raises(RuntimeError, match="PMI_SIZE"):
        get_env_rank_and_size()
    monkeypatch.setenv("PMI_SIZE", "5")
    assert get_env_rank_and_size() == (2, 5)
    monkeypatch.setenv("HOROVOD_RANK", "1")
    monkeypatch.setenv("HOROVOD_SIZE", "3")
    assert get_env_rank_and_size() == (1, 3)
