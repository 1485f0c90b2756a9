"""What every collective does with torch tensors: checks them, finds the prepared operation, starts it."""
import sys

import torch

from horovod import _core, _ops

DTYPES = {
    torch.bool: _core.BOOL, torch.uint8: _core.UINT8, torch.int8: _core.INT8, torch.int16: _core.INT16,
    torch.int32: _core.INT32, torch.int64: _core.INT64, torch.float16: _core.FLOAT16,
    torch.bfloat16: _core.BFLOAT16, torch.float32: _core.FLOAT32, torch.float64: _core.FLOAT64}
if hasattr(torch, "uint16"):
    DTYPES[torch.uint16] = _core.UINT16


def check_tensor(tensor, verb, name):
    """Raises unless the tensor can be communicated as it lies in memory."""
    if not isinstance(tensor, torch.Tensor):
        of = "" if name is None else f" of tensor {name!r}"
        raise TypeError(f"{verb}{of}: expected a torch.Tensor, found {type(tensor).__name__}")
    problem = _what_is_in_the_way_of(tensor)
    if problem is not None:
        what = f"tensor {name!r}" if name is not None else \
            "a tensor" if _has_no_shape(tensor) else f"a tensor of shape {list(tensor.shape)}"
        raise ValueError(f"{verb} of {what}: {problem}")


def _has_no_shape(tensor):
    return tensor.is_nested or torch.nn.parameter.is_lazy(tensor)


def _what_is_in_the_way_of(tensor):
    """Why the tensor cannot be communicated, and what to do; None if it can."""
    if torch.nn.parameter.is_lazy(tensor):
        return "the parameter has no values yet; run the model once, from which lazy modules learn their shapes"
    if tensor.is_nested:
        return "nested tensors have no shape that ranks could agree about; communicate the parts (tensor.unbind()) " \
               "or tensor.to_padded_tensor(0.0)"
    if tensor.is_meta:
        return "it lies on the meta device and has no values; give it memory first, as by " \
               "module.to_empty(device='cpu'), and values"
    if tensor.layout != torch.strided:
        return f"expected a dense tensor, found layout {tensor.layout}; use sparse_allreduce_async or tensor.to_dense()"
    if tensor.dtype not in DTYPES:
        instead = "communicate torch.view_as_real(tensor), which shares its memory" if tensor.is_complex() else \
            f"supported are: {', '.join(str(dtype) for dtype in DTYPES)}"
        return f"Tensor type {tensor.dtype} is not supported; {instead}"
    if not tensor.is_contiguous():
        return f"the tensor is not contiguous (shape {list(tensor.shape)}, strides {list(tensor.stride())}); " \
               "use tensor.contiguous()"
    if tensor.is_neg():
        return "the tensor's memory holds its negative (as of a conjugate's imaginary part); use tensor.resolve_neg()"
    return _why_without_memory(tensor)


def _why_without_memory(tensor):
    """None for a tensor that has memory of its own, or needs none."""
    kind = type(tensor)
    computes = kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__  # what it shows, from what it wraps
    fakes = sys.modules.get("torch._subclasses.fake_tensor")
    if fakes is not None and isinstance(tensor, fakes.FakeTensor):
        return "a FakeTensor stands for a tensor while a program is traced, and has no values; call Horovod outside " \
               "of that"
    if tensor.numel() == 0 or not (tensor.is_cpu or computes) or _address_of(tensor) != 0:
        return None
    if hasattr(tensor, "to_local"):
        return f"a {kind.__name__} is spread over processes and has no memory of its own; communicate the part that " \
               "is here (tensor.to_local()) or all of it (tensor.full_tensor())"
    if computes:
        return f"a {kind.__name__} wraps other tensors and has no memory of its own; communicate the tensors it wraps"
    return "it has elements but no memory: its storage was resized to nothing, or it belongs to a transformation " \
           "(torch.func, vmap) that a collective cannot take part in; communicate a tensor that holds its values"


def _address_of(tensor):
    try:
        return tensor.data_ptr()
    except RuntimeError:  # a tensor without storage
        return 0


def wants_gradient(tensors):
    return torch.is_grad_enabled() and any(isinstance(tensor, torch.Tensor) and tensor.requires_grad
                                           for tensor in tensors)


def full_name_of(prefix, name):
    return f"{prefix}.noname.{_ops.new_unnamed()}" if name is None else f"{prefix}.{name}"


def prepared(name, key, *description):
    """The prepared operation of a tensor; one for this use alone if the user gave no name."""
    return _ops.transient(*description) if name is None else _ops.operation(key, *description)


def group_names(prefix, name, count):
    base = full_name_of(prefix, name)
    return [f"{base}_{i}of{count}" for i in range(1, count + 1)]


def submit(operation, tensor, output):
    """Starts an operation from `tensor` into `output`, through the host's memory if they lie on a device."""
    if tensor.is_cpu:
        return _ops.submit(operation, tensor.data_ptr(), output.data_ptr(), 0, output, tensor)
    host = tensor.detach().cpu()
    address = host.data_ptr()
    return _ops.submit(operation, address, address, 0, output, host, lambda _, out: _store(out, host))


def submit_group(operations, tensors, outputs):
    """As submit, for several tensors that become ready together. synchronize returns `outputs`."""
    sources = [tensor if tensor.is_cpu else tensor.detach().cpu() for tensor in tensors]
    targets = [output if tensor.is_cpu else source for tensor, source, output in zip(tensors, sources, outputs)]
    members = [(operation, source.data_ptr(), target.data_ptr(), 0)
               for operation, source, target in zip(operations, sources, targets)]

    def store(_, outputs):
        for output, target in zip(outputs, targets):
            if output is not target:
                _store(output, target)
        return outputs

    on_host = all(output is target for output, target in zip(outputs, targets))
    return _ops.submit_group(members, outputs, (sources, targets), None if on_host else store)


def _store(output, host):
    with torch.no_grad():
        return output.copy_(host)
