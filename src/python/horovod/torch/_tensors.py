"""What every collective does with torch tensors: checks them, finds the prepared operation, starts it."""
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
    what = f"{verb} of tensor {name!r}" if name is not None else f"{verb} of a tensor of shape {list(tensor.shape)}" \
        if isinstance(tensor, torch.Tensor) else verb
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{what}: expected a torch.Tensor, found {type(tensor).__name__}")
    if tensor.layout != torch.strided:
        raise ValueError(f"{what}: expected a dense tensor, found layout {tensor.layout}; "
                         "use sparse_allreduce_async or tensor.to_dense()")
    if tensor.dtype not in DTYPES:
        raise ValueError(f"{what}: Tensor type {tensor.dtype} is not supported. "
                         f"Supported are: {', '.join(str(dtype) for dtype in DTYPES)}")
    if not tensor.is_contiguous():
        raise ValueError(f"{what}: the tensor is not contiguous (shape {list(tensor.shape)}, strides "
                         f"{list(tensor.stride())}); use tensor.contiguous()")
    if tensor.is_neg():
        raise ValueError(f"{what}: the tensor's memory holds its negative (as of a conjugate's imaginary part); "
                         "use tensor.resolve_neg()")


def wants_gradient(tensors):
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


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
