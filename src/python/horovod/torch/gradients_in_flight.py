"""Gradients that are being reduced. Code that uses such a gradient waits for it first.

From its submission until its result is there, a gradient is of the class InFlight. It is the same object in the same
memory, but torch calls this class before it does anything with the object. So gradient clipping, a hook of the program
or a gradient scaler sees the result of all ranks, and never changes memory that is being reduced. Code in C++ that gets
the tensor in other ways (torch.vmap, torch.func.grad, TorchScript, extensions) does not call this class. Nor does code
that uses a view made earlier, or a numpy array. Of the changes that such code makes, the reducer notices only those
that count in the tensor's version.
"""
import torch

_waiting = {}  # id of a tensor -> the object with settle(), which holds the tensor
_abandoned = []  # gradients whose optimizer is gone


class InFlight(torch.Tensor):
    """The class of a gradient while it is reduced."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function not in _LEAVES_VALUES_ALONE:
            _settle_all(args)
            if kwargs:
                _settle_all(kwargs.values())
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))


def take_off(tensor, gradient):
    """Puts a tensor into flight: code that uses it waits by calling settle() of the gradient."""
    base = tensor._base
    _waiting[id(tensor)] = gradient
    if type(tensor) is torch.Tensor:  # a tensor of a class of the program keeps its class
        tensor.__class__ = InFlight
    if base is not None:
        _buffer_at(base).gradients[id(tensor)] = gradient


def land(tensor):
    """Makes the tensor an ordinary one again."""
    if type(_waiting.get(id(tensor))) is _Buffer:  # parts of it are in flight, too
        _leave_buffer(tensor, tensor)
        return
    _waiting.pop(id(tensor), None)
    if type(tensor) is InFlight:
        tensor.__class__ = torch.Tensor
    base = tensor._base
    if base is not None:
        _leave_buffer(base, tensor)


class _Buffer:
    """A tensor whose parts are gradients in flight. Code that uses it waits for all of them."""

    def __init__(self, base):
        self.base = base
        self.gradients = {}  # id of the part -> gradient

    def settle(self):
        for gradient in list(self.gradients.values()):
            gradient.settle()


def _buffer_at(base):
    buffer = _waiting.get(id(base))
    if type(buffer) is not _Buffer:
        gradient, buffer = buffer, _Buffer(base)
        if gradient is not None:
            buffer.gradients[id(base)] = gradient
        take_off(base, buffer)
    return buffer


def _leave_buffer(base, part):
    buffer = _waiting.get(id(base))
    if type(buffer) is _Buffer:
        buffer.gradients.pop(id(part), None)
        if not buffer.gradients:
            del _waiting[id(base)]
            land(base)


def abandon(gradients):
    """Called when their optimizer is gone. They land when somebody uses them, or at the next call after the end."""
    _abandoned[:] = [gradient for gradient in _abandoned + gradients if not gradient.lands_if_done()]


def version_of(tensor):
    """Returns a number that grows with every change of the tensor. Tensors made in inference mode have none."""
    try:
        return tensor._version
    except RuntimeError:
        return 0


def in_flight_with(tensor):
    """Returns the object that the tensor's users wait for; None if the tensor is not in flight."""
    return _waiting.get(id(tensor))


def _settle_all(values):
    for value in values:
        if type(value) is InFlight:
            gradient = _waiting.get(id(value))
            if gradient is not None:
                gradient.settle()
            else:
                value.__class__ = torch.Tensor
        elif isinstance(value, (list, tuple)):
            _settle_all(value)
        elif isinstance(value, dict):
            _settle_all(value.values())


def _getters(*names):
    return {getattr(torch.Tensor, name).__get__ for name in names if hasattr(torch.Tensor, name)}


def _methods(*names):
    return {getattr(torch.Tensor, name) for name in names if hasattr(torch.Tensor, name)}


# Attributes that do not depend on a tensor's values.
_LEAVES_VALUES_ALONE = frozenset(
    _getters("shape", "dtype", "device", "layout", "ndim", "is_sparse", "is_sparse_csr", "is_cpu", "is_cuda", "is_meta",
             "is_mkldnn", "is_nested", "is_quantized", "is_leaf", "requires_grad", "grad_fn", "_version", "names",
             "itemsize", "nbytes", "output_nr", "retains_grad", "_base")
    | _methods("size", "dim", "ndimension", "numel", "nelement", "stride", "storage_offset", "element_size",
               "is_contiguous", "is_floating_point", "is_complex", "is_signed", "is_inference", "is_neg", "is_conj",
               "get_device", "has_names", "_is_view", "__hash__", "__len__", "sparse_dim", "dense_dim")
    | {torch.is_floating_point, torch.is_complex, torch.numel, torch.is_tensor})
