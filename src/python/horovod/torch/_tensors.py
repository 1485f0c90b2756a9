"""The steps that every collective does with torch tensors: check them, find the prepared operation, start it."""
import sys

import torch
from torch.autograd import forward_ad

from horovod import _core, _ops
from horovod.common import operations
from horovod.torch._devices import current_stream, is_on_gpu

try:
    from torch.utils.weak import WeakIdKeyDictionary as ByTensor  # tensor -> anything; an entry goes with its tensor
except ImportError:  # before torch 2.0
    ByTensor = dict

DTYPES = {
    torch.bool: _core.BOOL, torch.uint8: _core.UINT8, torch.int8: _core.INT8, torch.int16: _core.INT16,
    torch.int32: _core.INT32, torch.int64: _core.INT64, torch.float16: _core.FLOAT16,
    torch.bfloat16: _core.BFLOAT16, torch.float32: _core.FLOAT32, torch.float64: _core.FLOAT64}
if hasattr(torch, "uint16"):  # torch 2.3 and newer
    DTYPES.update({torch.uint16: _core.UINT16, torch.uint32: _core.UINT32, torch.uint64: _core.UINT64})


def check_tensor(tensor, verb, name):
    """Raises unless the tensor can be communicated directly from its memory."""
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
    """Says why the tensor cannot be communicated, and what to do. None if it can."""
    if torch.nn.parameter.is_lazy(tensor):
        return "the parameter has no values yet; run the model once, from which lazy modules learn their shapes"
    if tensor.is_nested:
        return "nested tensors have no shape that ranks could agree about; communicate the parts (tensor.unbind()) " \
               "or tensor.to_padded_tensor(0.0)"
    if tensor.is_meta:
        return "it is on the meta device and has no values; give it memory first, as by " \
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
    """Returns None for a tensor that has its own memory or needs none; else the reason why it has none."""
    kind = type(tensor)
    # this tensor's values come from another tensor that it wraps
    computes = kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    fakes = sys.modules.get("torch._subclasses.fake_tensor")
    if fakes is not None and isinstance(tensor, fakes.FakeTensor):
        return "a FakeTensor stands for a tensor while a program is traced, and has no values; call Horovod outside " \
               "of that"
    if tensor.numel() == 0 or not (tensor.is_cpu or is_on_gpu(tensor) or computes) or _address_of(tensor) != 0:
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
    if getattr(forward_ad, "_current_level", -1) >= 0:
        _check_has_no_tangent(tensors)
    return torch.is_grad_enabled() and any(isinstance(tensor, torch.Tensor) and tensor.requires_grad
                                           for tensor in tensors)


def _check_has_no_tangent(tensors):
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and forward_ad.unpack_dual(tensor).tangent is not None:
            raise NotImplementedError(
                f"a collective got a tensor of shape {list(tensor.shape)} with a tangent "
                "(torch.autograd.forward_ad), which its result would lack. Communicate both parts of "
                "forward_ad.unpack_dual(tensor), and put them together by forward_ad.make_dual")


def version_of(tensor):
    """Returns a number that grows with every change of the tensor; 0 for tensors made in inference mode."""
    try:
        return tensor._version
    except RuntimeError:
        return 0


_users_of_storage = getattr(torch._C, "_storage_Use_Count", None)  # not before torch 2.1
_address_of_storage = getattr(torch._C, "_storage_address", lambda tensor: tensor.untyped_storage()._cdata)


def is_part_of_more(gradient):
    """Called by a hook when a backward pass has just computed the gradient. True if other gradients are in its memory,
    or may be. False for a tensor that was there before, to which the pass has added."""
    if gradient._version or gradient.layout is not torch.strided:
        return False
    if _users_of_storage is not None:
        # These are the gradient itself and the tensor that autograd made it from. Python's untyped_storage() is not
        # asked: it costs an object that lives as long as the memory.
        return _users_of_storage(_address_of_storage(gradient)) > 2
    storage = gradient.untyped_storage() if hasattr(gradient, "untyped_storage") else gradient.storage()
    return storage.nbytes() > gradient.numel() * gradient.element_size()


def gradient_dtype(parameter):
    """Returns the dtype of the parameter's gradient: since torch 2.10 a program may choose another one than the
    parameter's own (Tensor.grad_dtype)."""
    return getattr(parameter, "grad_dtype", None) or parameter.dtype


def _increment_version_by_change(tensor):
    """What torch.autograd.graph.increment_version does, for versions of torch that lack it: changes no element."""
    with torch.no_grad():
        tensor.detach().view(-1)[:0].zero_()


_increment_version = getattr(getattr(torch.autograd, "graph", None), "increment_version", _increment_version_by_change)


def _note_change_one_by_one(tensors):
    for tensor in tensors:
        if not tensor.is_inference():
            _increment_version(tensor)


# note_change(tensors) tells autograd that an operation in place changes these tensors. A backward pass that needs their
# earlier values then raises an error, as after torch's own operations in place. It is what increment_version() calls,
# without the look at the kind of the argument, which takes longer than the rest.
note_change = getattr(torch._C, "_increment_version", None)
try:
    note_change(())
except (TypeError, RuntimeError):  # older versions of torch take one tensor
    note_change = _note_change_one_by_one


def check_group(tensors, verb, name):
    """Raises unless these tensors can be communicated together."""
    if not tensors:
        raise ValueError(f"{verb}: expected at least one tensor, found an empty list")
    for tensor in tensors:
        check_tensor(tensor, verb, name)
    operations.check_kinds_of_memory([tensor.device.type for tensor in tensors], verb)


def check_adasum(process_set, tensor=None):
    """Raises unless tensors like `tensor` can be reduced by Adasum over the set."""
    operations.check_adasum(process_set)
    if tensor is not None and not tensor.dtype.is_floating_point:
        raise ValueError(f"op=hvd.Adasum is for floating-point tensors; found {tensor.dtype}")


def rows_of(tensor):
    return tensor.shape[0] if tensor.dim() else 0


def is_on_host(tensor):
    return tensor.is_cpu


def on_host(tensor):
    """Returns the tensor, or a copy of it in the host's memory."""
    return tensor if is_on_host(tensor) else tensor.detach().to("cpu", copy=True)


def source_of(operation, tensor):
    """Returns what the operation reads: the tensor, or a copy of it in the host's memory."""
    return tensor if operation.ordinal >= 0 else on_host(tensor)


def stream_of(operation):
    """Returns the stream on which an operation that is started now gets its input. None on the host."""
    return current_stream(operation.ordinal) if operation.ordinal >= 0 else None


def kept_result(handle, index, like, stream):
    """Returns result number `index` of an operation that is done, on the device of `like`. `stream` is that of the
    start (stream_of).

    On a GPU it is copied into memory of torch's: torch counts that, and knows what record_stream() says of it. The
    memory that received the result is used again in the order of `stream`, whatever other streams do with it.
    """
    result = torch.from_dlpack(_core.take_result(handle, index, DTYPES[like.dtype]))
    if stream is None:
        return result if is_on_host(like) else result.to(like.device)
    now = current_stream(like.device)
    copy = result.clone()
    if now != stream:
        stream.wait_stream(now)
    return copy


def submit(operation, tensor, output):
    """Starts an operation from `tensor` into `output`, which are where the operation works, or on a device: they are
    copied through the host's memory then."""
    if operation.ordinal >= 0 or is_on_host(tensor):
        return _ops.submit(operation, tensor.data_ptr(), output.data_ptr(), 0, output, tensor)
    host = on_host(tensor)
    target = _target_on_host(host, output)
    return _ops.submit(operation, host.data_ptr(), target.data_ptr(), 0, output, (host, target),
                       lambda _, out: _store(out, target))


def submit_group(operations, tensors, outputs):
    """Like submit, for several tensors that become ready together. synchronize returns `outputs`."""
    if operations[0].ordinal >= 0:
        members = [(operation, tensor.data_ptr(), output.data_ptr(), 0)
                   for operation, tensor, output in zip(operations, tensors, outputs)]
        return _ops.submit_group(members, outputs, tensors)
    sources = [on_host(tensor) for tensor in tensors]
    targets = [_target_on_host(source, output) for source, output in zip(sources, outputs)]
    members = [(operation, source.data_ptr(), target.data_ptr(), 0)
               for operation, source, target in zip(operations, sources, targets)]

    def store(_, outputs):
        for output, target in zip(outputs, targets):
            if output is not target:
                _store(output, target)
        return outputs

    are_there = all(output is target for output, target in zip(outputs, targets))
    return _ops.submit_group(members, outputs, (sources, targets), None if are_there else store)


def _target_on_host(source, output):
    """Returns the host tensor that receives the result: `source` itself if it has the shape of the result."""
    if is_on_host(output):
        return output
    return source if output.shape == source.shape else torch.empty(output.shape, dtype=output.dtype, device="cpu")


def _store(output, host):
    """Copies a result to the device. The copy does not increase the version of the output: like a reduction in the
    host's memory, it happens after the operation was started, and nobody has changed the output meanwhile."""
    output.data.copy_(host)
    return output
