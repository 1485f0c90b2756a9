"""Ranks of Python with memory of a GPU, without a framework: what horovod._core does with devices and streams.

python_ranks.py [file | loss | cut]: HOROVOD_CUDA_DRIVER names the double of the driver, which ends the process with a
status of its own if a wait is missing. file: the core gets that setting from the user's file in place of the
environment. loss, cut: the last rank is lost while a tensor is on its way, or while it is being sent.
"""
import array
import ctypes
import os
import pathlib
import signal
import sys
import tempfile
import threading

from horovod import _core
from horovod.common.exceptions import HorovodInternalError

path = os.environ["HOROVOD_CUDA_DRIVER"]
driver = ctypes.CDLL(path)
if "file" in sys.argv:
    del os.environ["HOROVOD_CUDA_DRIVER"]
    folder = tempfile.TemporaryDirectory()
    os.environ["XDG_CONFIG_HOME"] = folder.name
    (pathlib.Path(folder.name) / "horovod").mkdir()
    (pathlib.Path(folder.name) / "horovod" / "config.yaml").write_text(f"settings:\n  HOROVOD_CUDA_DRIVER: {path}\n")
COUNT, BYTES = 1000, 4000
NON_BLOCKING = 1


def call(name, *arguments):
    code = getattr(driver, name)(*arguments)
    assert code == 0, f"{name}: {code}"


def made(name, kind, *arguments):
    value = kind()
    call(name, ctypes.byref(value), *arguments)
    return value.value


class Framework:
    """Has a current stream, as torch has."""

    def __init__(self, ordinal):
        self.ordinal = ordinal
        call("cuCtxSetCurrent", ctypes.c_void_p(made("cuDevicePrimaryCtxRetain", ctypes.c_void_p, ordinal)))
        self.streams = [made("cuStreamCreateWithPriority", ctypes.c_void_p, NON_BLOCKING, 0) for _ in range(2)]
        self.current = self.streams[0]
        self.asked = []

    def operation(self, verb, name):
        return _core.prepare(name, verb, _core.FLOAT32, (COUNT,), _core.SUM, 1.0, 1.0, 0, 0, 0, None, self.ordinal)

    def stream_of(self, ordinal):
        self.asked.append(ordinal)
        return self.current

    def array(self, values=None):
        memory = made("cuMemAlloc_v2", ctypes.c_uint64, BYTES)
        if values is not None:
            call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(memory), (ctypes.c_float * COUNT)(*values), BYTES,
                 ctypes.c_void_p(self.current))
        return memory

    def read(self, memory, count=COUNT):
        values = (ctypes.c_float * count)()
        call("cuMemcpyDtoHAsync_v2", values, ctypes.c_uint64(memory), 4 * count, ctypes.c_void_p(self.current))
        call("cuStreamSynchronize", ctypes.c_void_p(self.current))
        return list(values)


def streams_wait_for_results(framework, rank, size):
    expected = [float(i * size * (size + 1) // 2) for i in range(COUNT)]
    for step in range(4):
        framework.current = framework.streams[0]
        source, target = framework.array([float(i * (rank + 1)) for i in range(COUNT)]), framework.array()
        handle = _core.submit(framework.operation(_core.ALLREDUCE, "sum"), source, target, 0, "value", None)
        framework.current = framework.streams[step % 2]  # the program goes on there
        assert _core.synchronize(handle) == "value"
        assert framework.read(target) == expected
    assert set(framework.asked) == {framework.ordinal}


def the_default_stream_has_a_handle(framework, rank, size):
    framework.current = 0
    source, target = framework.array([1.0] * COUNT), framework.array()
    found = framework.operation(_core.ALLREDUCE, "of the default stream")
    _core.finish(_core.submit(found, source, target, 0, None, None))
    assert framework.read(target) == [float(size)] * COUNT
    framework.current = framework.streams[0]


def a_capture_that_refuses_to_wait_leaves_the_operation(framework, rank, size):
    source, target = framework.array([float(rank + 1)] * COUNT), framework.array()
    operation = framework.operation(_core.ALLREDUCE, "captured")
    expected = [float(size * (size + 1) // 2)] * COUNT
    start, other = framework.streams
    for captured in start, other:  # the stream of the start, and the one with which the program goes on
        for wait in _core.synchronize, lambda handle: _core.synchronize_all([handle]):
            handle = _core.submit(operation, source, target, 0, None, None)
            framework.current = captured
            call("cuStreamBeginCapture_v2", ctypes.c_void_p(captured), 2)
            try:
                wait(handle)
                raise AssertionError("a stream that is captured waits")
            except ValueError as error:
                assert "captured for a CUDA graph" in str(error), error
            call("cuStreamEndCapture", ctypes.c_void_p(captured), ctypes.byref(ctypes.c_void_p()))
            wait(handle)
            assert framework.read(target) == expected
            framework.current = start


class Tensor(ctypes.Structure):  # of DLPack
    _fields_ = [("data", ctypes.c_uint64), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


def kept_results_are_on_the_device(framework, rank, size):
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    source = framework.array([float(rank)] * COUNT)
    gather = framework.operation(_core.ALLGATHER, "gather")
    capsule = _core.finish(_core.submit(gather, source, 0, rank + 1, None, None,
                                        lambda handle, _: _core.take_result(handle, 0, _core.FLOAT32)))
    tensor = Tensor.from_address(pointer_of(capsule, b"dltensor"))
    cuda = 2
    assert (tensor.device_type, tensor.device_id) == (cuda, framework.ordinal)
    rows = [float(each) for each in range(size) for _ in range(each + 1)]
    assert framework.read(tensor.data, len(rows)) == rows


def the_host_does_not_wait_for_the_device(framework, rank, size):
    source, target = framework.array([float(rank + 1)] * COUNT), framework.array()
    held = ctypes.c_void_p(framework.current)
    driver.hvd_double_hold(held)
    _core.finish(_core.submit(framework.operation(_core.ALLREDUCE, "held"), source, target, 0, None, None))
    driver.hvd_double_let_go(held)
    assert framework.read(target) == [float(size * (size + 1) // 2)] * COUNT


def a_loss_leaves_memory_to_the_program(framework, rank, size, is_cut_off):
    """is_cut_off: NCCL hangs in its launch, when the operation has already queued other work on the device. The program
    waits for the operation; otherwise it does not."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # of the launcher
    nccl, launch = ctypes.CDLL(os.environ["HOROVOD_NCCL_LIBRARY"]), 1
    source, target = framework.array([1.0] * COUNT), framework.array()
    operation = _core.prepare("lost", _core.ALLREDUCE, _core.FLOAT32, (COUNT,), _core.SUM, 0.5, 1.0, 0, 0, 0, None,
                              framework.ordinal)
    _core.finish(_core.submit(operation, source, target, 0, None, None))
    fives = (ctypes.c_float * COUNT)(*[5.0] * COUNT)
    held = ctypes.c_void_p(framework.current)
    call("cuStreamSynchronize", held)
    driver.hvd_double_hold(held)
    nccl.hvd_nccl_double_hang(launch, is_cut_off)
    handle = _core.submit(operation, source, target, 0, None, None)
    while not _core.poll(handle) and not (is_cut_off and nccl.hvd_nccl_double_calls(b"ncclAllReduce") == 2):
        pass
    host = array.array("i", [0] * 4)
    address = host.buffer_info()[0]
    on_host = _core.prepare("on the host", _core.ALLREDUCE, _core.INT32, (4,), _core.SUM, 1.0, 1.0, 0, 0, 0, None)
    _core.finish(_core.submit(on_host, address, address, 0, None, host))
    if rank == size - 1:
        os._exit(9)
    try:
        while not is_cut_off:
            _core.finish(_core.submit(on_host, address, address, 0, None, host))
        _core.finish(handle)
        raise AssertionError("nobody has told of the loss")
    except HorovodInternalError as error:
        assert f"rank {size - 1}" in str(error), error
    if not is_cut_off:
        _core.shutdown()
    call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(target), fives, BYTES, held)
    driver.hvd_double_let_go(held)
    assert framework.read(target) == [5.0] * COUNT
    print(f"rank {rank} has its memory", flush=True)


def the_host_waits_if_it_is_told_to(framework, rank, size):
    source, target = framework.array([float(rank + 1)] * COUNT), framework.array()
    host = array.array("f", [0.0])
    address = host.buffer_info()[0]
    held = ctypes.c_void_p(framework.current)
    driver.hvd_double_hold(held)
    handle = _core.submit(framework.operation(_core.ALLREDUCE, "waited for"), source, target, 0, None, None)
    waiter = threading.Thread(target=_core.synchronize, args=(handle,))
    waiter.start()
    for step in range(20):  # the ranks have agreed on the operation long before these are done
        later = _core.prepare("later", _core.ALLREDUCE, _core.FLOAT32, (1,), _core.SUM, 1.0, 1.0, 0, 0, 0, None)
        _core.finish(_core.submit(later, address, address, 0, None, host))
    assert not _core.poll(handle) and waiter.is_alive()
    driver.hvd_double_let_go(held)
    waiter.join()
    assert framework.read(target) == [float(size * (size + 1) // 2)] * COUNT


def main():
    assert _core.device_built("cuda") and not _core.device_built("rocm") and not _core.device_built("x")
    call("cuInit", 0)
    _core.init()
    rank, size = _core.world()[:2]
    framework = Framework(rank % made("cuDeviceGetCount", ctypes.c_int))
    assert not _core.has_device(0)  # no framework has any
    try:
        _core.submit(framework.operation(_core.ALLREDUCE, "early"), 1, 1, 0, None, None)
        raise AssertionError("a start found a stream though no framework has told of one")
    except HorovodInternalError as error:
        assert "set_stream_source" in str(error)
    _core.set_stream_source(framework.stream_of, "cuda")
    assert _core.has_device(0)
    if "loss" in sys.argv or "cut" in sys.argv:
        return a_loss_leaves_memory_to_the_program(framework, rank, size, "cut" in sys.argv)
    checks = [streams_wait_for_results, the_default_stream_has_a_handle, kept_results_are_on_the_device]
    if os.environ.get("HOROVOD_ENABLE_ASYNC_COMPLETION") == "0":
        checks.append(the_host_waits_if_it_is_told_to)
    else:
        checks.append(a_capture_that_refuses_to_wait_leaves_the_operation)
        if "HOROVOD_NCCL_LIBRARY" in os.environ:  # otherwise results travel through the host
            checks.append(the_host_does_not_wait_for_the_device)
    for check in checks:
        check(framework, rank, size)
    # Host memory goes on as before.
    host = array.array("f", [float(rank)] * 4)
    address = host.buffer_info()[0]
    on_host = _core.prepare("on the host", _core.ALLREDUCE, _core.FLOAT32, (4,), _core.SUM, 1.0, 1.0, 0, 0, 0, None)
    _core.finish(_core.submit(on_host, address, address, 0, None, host))
    assert host[0] == size * (size - 1) / 2 and on_host.ordinal == -1
    _core.shutdown()


main()
