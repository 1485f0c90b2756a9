"""Kernels of torch's CUDA build on the double of the driver: an operator with CUDA tensors runs as its CPU kernel.

The bytes of its arguments are read from the device's memory in the order of the current stream, the CPU kernel
computes, and what it wrote is stored by a copy that runs late on the current stream. So a result is there when a
kernel's would be: for those who wait for it. Allocations, views, copies of equal layout, streams and events stay
torch's own.

Import it before a program uses CUDA (with_double.py does).
"""
import ctypes
import warnings

import torch

# These launch no kernel.
OWN = ("empty", "as_strided", "_reshape_alias", "view", "unfold", "set_", "resize_", "record_stream", "is_set_to",
       "_local_scalar_dense", "is_pinned", "_pin_memory", "_nested_view")
# These choose among libraries.
ALSO = ("convolution", "convolution_backward")
# Batch normalisations write these arguments, and their schemas do not tell it.
WRITTEN = ("running_mean", "running_var")
_AUTOCAST_OF_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
SPARSE = ("_coalesce", "add.out", "add_.Tensor", "add.Tensor", "mul.out", "_to_dense", "sparse_mask", "sum", "norm",
          "addmm", "mm", "_sparse_mm", "copy_sparse_to_sparse_", "index_select", "cat", "zero_")


def _statistics(x, eps):
    channels = x.transpose(0, 1).flatten(1)
    return channels.mean(1), (channels.var(1, unbiased=False) + eps).rsqrt()


# Operators without a CPU kernel, on host tensors.
BODIES = {"batch_norm_stats": _statistics}
for _library in ("cudnn", "miopen"):
    for _overload in ("", ".Tensor"):
        BODIES[f"_use_{_library}_ctc_loss{_overload}"] = lambda *_: False

driver = ctypes.CDLL("libcuda.so.1")
runtime = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")


def _fetch(copies):
    """Reads memory of the device in the order of the current stream, as a kernel would. copies: of (to, from, bytes)"""
    if copies:
        stream = torch.cuda.current_stream().cuda_stream
        flat = (ctypes.c_size_t * (3 * len(copies)))(*[number for copy in copies for number in copy])
        if driver.hvd_double_fetch(flat, ctypes.c_size_t(len(copies)), ctypes.c_void_p(stream)):
            raise RuntimeError("the double of the driver refuses to read for a kernel")


def _store(to, source, size):
    """What a kernel writes: a copy that runs late on the current stream. The bytes are taken before it returns."""
    stream = torch.cuda.current_stream().cuda_stream
    to_device = 1
    if size and runtime.cudaMemcpyAsync(*map(ctypes.c_void_p, (to, source, size)), to_device, ctypes.c_void_p(stream)):
        raise RuntimeError("the double of the driver refuses to write for a kernel")


def _extent(tensor):
    """Returns the first byte and the size of what a strided tensor can touch."""
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride())) if tensor.numel() else -1
    return tensor.storage_offset() * tensor.element_size(), (last + 1) * tensor.element_size()


class _Call:
    """One run of an operator: the host's copies of its tensors."""

    def __init__(self):
        self._storages, self._pairs, self._wanted = {}, [], []

    def all_to_host(self, args, kwargs):
        """Returns the arguments with copies of all tensors."""
        of_host = [self._to_host(each) for each in args], {name: self._to_host(each) for name, each in kwargs.items()}
        _fetch(self._wanted)
        return of_host

    def _to_host(self, x):
        if isinstance(x, torch.Tensor):
            return self._copy_of(x) if x.is_cuda else x
        if isinstance(x, (list, tuple)):
            return type(x)(self._to_host(each) for each in x)
        if isinstance(x, torch.device):
            return torch.device("cpu")
        if isinstance(x, torch.Generator) and x.device.type == "cuda":
            return None
        return x

    def _copy_of(self, tensor):
        """Tensors that share a storage share the host's copy of it."""
        if tensor.is_sparse:
            copy = torch.sparse_coo_tensor(self._copy_of(tensor._indices()), self._copy_of(tensor._values()),
                                           tensor.shape, is_coalesced=tensor.is_coalesced(), check_invariants=False)
        else:
            storage = tensor.untyped_storage()
            host = self._storages.setdefault(storage.data_ptr(), torch.UntypedStorage(storage.nbytes()))
            at, size = _extent(tensor)
            if size:
                self._wanted.append((host.data_ptr() + at, storage.data_ptr() + at, size))
            copy = torch.empty(0, dtype=tensor.dtype).set_(host, tensor.storage_offset(), tensor.shape,
                                                           tensor.stride())
        self._pairs.append((tensor, copy))
        return copy

    def store(self, tensor, host):
        if tensor.is_sparse:
            tensor.data = self.to_device(host.detach())
            return
        if tensor.shape != host.shape or tensor.stride() != host.stride():  # the CPU kernel has resized an output
            tensor.resize_(host.shape).as_strided_(host.shape, host.stride())
        (at, size), (source, _) = _extent(tensor), _extent(host)
        _store(tensor.untyped_storage().data_ptr() + at, host.untyped_storage().data_ptr() + source, size)

    def to_device(self, x):
        if isinstance(x, (list, tuple)):
            return type(x)(self.to_device(each) for each in x)
        if not isinstance(x, torch.Tensor):
            return x
        for tensor, copy in self._pairs:
            if copy is x:
                return tensor
        if x.is_sparse:
            return torch.sparse_coo_tensor(self.to_device(x._indices()), self.to_device(x._values()), x.shape,
                                           is_coalesced=x.is_coalesced(), check_invariants=False)
        out = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda")
        self.store(out, x)
        return out


def _device_of(values):
    for x in values:
        if isinstance(x, torch.Tensor) and x.is_cuda:
            return x.device
        if isinstance(x, torch.device) and x.type == "cuda":
            return x
        if isinstance(x, (list, tuple)) and (device := _device_of(x)) is not None:
            return device
    return None


def _on_host(operator, body=None):
    """Returns the function that takes the place of the operator's CUDA kernel."""
    arguments = operator._schema.arguments
    names = [each.name for each in arguments]
    are_tensors = [str(each.type) == "Tensor" for each in arguments]
    written = [each.alias_info is not None and each.alias_info.is_write or each.name in WRITTEN for each in arguments]

    def kernel(*args, **kwargs):
        device = _device_of(args) or _device_of(kwargs.values())
        # A program's default device does not apply, nor what it asks of the CPU's operators.
        with torch._C.DisableTorchFunction(), torch._C._ExcludeDispatchKeyGuard(_AUTOCAST_OF_CPU):
            if device is None or device.index in (None, torch.cuda.current_device()):
                return on_this_device(*args, **kwargs)
            with torch.cuda.device(device):  # CUDA's own kernels run on the device of their tensors
                return on_this_device(*args, **kwargs)

    def on_this_device(*args, **kwargs):
        call = _Call()
        of_host, named_of_host = call.all_to_host(args, kwargs)
        of_host = [torch.tensor(each) if is_tensor and isinstance(each, (bool, int, float)) else each
                   for each, is_tensor in zip(of_host, are_tensors)]  # numbers that torch's C++ has wrapped
        if "device" in names and not any(isinstance(each, torch.Tensor) for each in args):
            named_of_host["device"] = torch.device("cpu")
        result = (body or operator)(*of_host, **named_of_host)
        for i, name in enumerate(names):
            if not written[i]:
                continue
            value, host = (args[i], of_host[i]) if i < len(args) else (kwargs.get(name), named_of_host.get(name))
            pairs = zip(value, host) if isinstance(value, (list, tuple)) else [(value, host)]
            for tensor, copy in pairs:
                if tensor is not None:
                    call.store(tensor, copy)
        return call.to_device(result)

    return kernel


def _copy(keys, to, source, non_blocking=False):
    """Copies of equal layout stay torch's own, with their streams and events."""
    is_plain = torch.nn.parameter.is_lazy(to) or torch.nn.parameter.is_lazy(source) or (
        to.dtype == source.dtype and to.shape == source.shape and to.stride() == source.stride() and
        torch.ops.aten.is_non_overlapping_and_dense(to) and to.is_neg() == source.is_neg())
    if is_plain:
        return _own_copy.call_boxed(keys, to, source, non_blocking)
    return _copy_on_host(to, source, non_blocking)


def _operators_of(key):
    return [name[len("aten::"):] for name in torch._C._dispatch_get_registrations_for_dispatch_key(key)
            if name.startswith("aten::")]


def _operator(name):
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)


torch.cuda.init()
torch.backends.cudnn.enabled = False
torch.backends.cuda.enable_flash_sdp(False)
torch.backends.cuda.enable_mem_efficient_sdp(False)
_own_copy = torch.library.get_kernel("aten::copy_", "CUDA")
_copy_on_host = _on_host(torch.ops.aten.copy_.default)
_registered = torch.library.Library("aten", "IMPL")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about kernels that are replaced
    for _name in dict.fromkeys(_operators_of("CUDA") + list(ALSO)):
        if not _name.partition(".")[0].startswith(OWN) and _operator(_name) is not None:
            _registered.impl(_name, _on_host(_operator(_name), BODIES.get(_name)), "CUDA")
    for _name in _operators_of("SparseCUDA"):
        if _name in SPARSE:
            _registered.impl(_name, _on_host(_operator(_name)), "SparseCUDA")
    _registered.impl("copy_", _copy, "CUDA", with_keyset=True)
