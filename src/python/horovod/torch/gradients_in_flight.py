"""Gradients that are being reduced: code that uses one waits for its result first.

From its submission until its result is there, a gradient is of the class InFlight. It is the same object in the same
memory, but torch calls this module before it uses the tensor. Therefore clipping, the program's own hooks and gradient
scalers see the reduced gradient, and never change memory that is being reduced. C++ code that reads the tensor
otherwise (torch.vmap, torch.func.grad, torch.tensor, torch.asarray, TorchScript, extensions) does not wait, nor does
code that uses a numpy array or an older view of the tensor. Changes by such code are noticed only if they increase the
tensor's version.
"""
import functools
import sys

import torch

from horovod import _ops

_waiting = {}  # id of a tensor -> the object with settle() that its users wait for; this object holds the tensor


class InFlight(torch.Tensor):
    """The class of a gradient while it is being reduced."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function not in _LEAVES_VALUES_ALONE:
            _settle_all(args)
            if kwargs:
                _settle_all(kwargs.values())
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))


def take_off(tensor, gradient):
    """From now on code that uses the tensor first calls settle() of `gradient`."""
    base = tensor._base
    _waiting[id(tensor)] = gradient
    if type(tensor) is torch.Tensor:  # a program's own class stays unchanged
        tensor.__class__ = InFlight
    if base is not None:
        _buffer_at(base).gradients[id(tensor)] = gradient


def land(tensor):
    """Makes the tensor an ordinary one again."""
    if type(_waiting.get(id(tensor))) is _Buffer:  # parts of the tensor are in flight, too
        _leave_buffer(tensor, tensor)
        return
    _waiting.pop(id(tensor), None)
    if type(tensor) is InFlight:
        tensor.__class__ = torch.Tensor
    base = tensor._base
    if base is not None:
        _leave_buffer(base, tensor)


class _Buffer:
    """A tensor with parts that are gradients in flight. Code that uses it waits for all of them."""

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


class _Abandoned:
    """What was in flight when its optimizer was deleted. It lands when it is used, or at the first call of add() after
    it is done."""

    def __init__(self):
        self._flights = []  # objects with lands_if_done() and lose()
        _ops.to_begin_anew.add(self)

    def add(self, flights):
        self._flights = [flight for flight in self._flights + flights if not flight.lands_if_done()]

    def begin_anew(self):
        for flight in self._flights:
            flight.lose()
        self._flights = []


abandoned = _Abandoned()


def wait_before_backward():
    """From now on backward(gradient=p.grad) and torch.autograd.grad(..., grad_outputs=p.grad) wait, too. Autograd asks
    only for what it differentiates. A second call changes nothing."""
    make = getattr(torch.autograd, "_make_grads", None)
    if make is None or hasattr(make, "_of_horovod"):
        return

    @functools.wraps(make)
    def make_after_the_wait(outputs, gradients, *args, **kwargs):
        _settle_all(gradients)
        return make(outputs, gradients, *args, **kwargs)

    make_after_the_wait._of_horovod = True
    torch.autograd._make_grads = make_after_the_wait


def wait_before_torch_distributed():
    """From now on the collectives of torch.distributed wait, too. Before torch asked in them (2.13 does), they called
    these checks of theirs, and then gave the memory away. A second call changes nothing."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    for name in ("_check_single_tensor", "_check_tensor_list"):
        check = getattr(module, name, None)
        if check is not None and not hasattr(check, "_of_horovod"):
            setattr(module, name, _after_the_wait(check))


def _after_the_wait(check):
    @functools.wraps(check)
    def wait_and_check(*args, **kwargs):
        _settle_all(args)
        _settle_all(kwargs.values())
        return check(*args, **kwargs)

    wait_and_check._of_horovod = True
    return wait_and_check


def in_flight_with(tensor):
    """Returns the object that users of the tensor wait for; None if the tensor is not in flight."""
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


# The functions that read other properties of a tensor than its values.
_LEAVES_VALUES_ALONE = frozenset(
    _getters("shape", "dtype", "device", "layout", "ndim", "is_sparse", "is_sparse_csr", "is_cpu", "is_cuda", "is_meta",
             "is_mkldnn", "is_nested", "is_quantized", "is_leaf", "requires_grad", "grad_fn", "_version", "names",
             "itemsize", "nbytes", "output_nr", "retains_grad", "_base")
    | _methods("size", "dim", "ndimension", "numel", "nelement", "stride", "storage_offset", "element_size",
               "is_contiguous", "is_floating_point", "is_complex", "is_signed", "is_inference", "is_neg", "is_conj",
               "get_device", "has_names", "_is_view", "__hash__", "__len__", "sparse_dim", "dense_dim")
    | {torch.is_floating_point, torch.is_complex, torch.numel, torch.is_tensor})
